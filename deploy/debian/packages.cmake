# Debian packages of this build: `cpack -G DEB` in its folder (README.md). One package for each
# component of the install rules; what a package needs of libraries dpkg-shlibdeps finds out.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME longhaul)
set(CPACK_PACKAGE_VENDOR "Longhaul")
set(CPACK_PACKAGE_CONTACT "Longhaul developers <developers@longhaul.invalid>" CACHE STRING
    "who answers for the Debian packages")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/worker/client)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_COMPONENTS_ALL)

string(TIMESTAMP date "%a, %d %b %Y 00:00:00 +0000" UTC)
set(made ${CMAKE_BINARY_DIR}/deploy/debian)

# lh_package(COMPONENT PACKAGE SECTION SUMMARY TEXT [DEPENDS])
function(lh_package component package section summary text)
    string(TOUPPER ${component} upper)
    set(of CPACK_DEBIAN_${upper}_PACKAGE)
    foreach(row "NAME|${package}" "SECTION|${section}" "DEPENDS|${ARGN}")
        string(REPLACE "|" ";" row "${row}")
        list(GET row 0 key)
        list(GET row 1 value)
        set(${of}_${key} "${value}" PARENT_SCOPE)
    endforeach()
    set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
    set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
    # What Debian's policy wants of each package.
    configure_file(${CMAKE_SOURCE_DIR}/deploy/debian/changelog.in ${made}/${package}/changelog @ONLY)
    execute_process(COMMAND gzip -9nf ${made}/${package}/changelog COMMAND_ERROR_IS_FATAL ANY)
    install(FILES ${made}/${package}/changelog.gz ${CMAKE_SOURCE_DIR}/deploy/debian/copyright
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component}
        EXCLUDE_FROM_ALL)
endfunction()

set(one "Longhaul trains one model across datacenters over ordinary links: each\nregion keeps its data and GPUs, small encrypted updates travel, and\nnobody waits for the slowest.\n.\nThis package has")
set(account "systemd | systemd-sysusers")
lh_package(server longhaul-server net "parameter server and coordinator of Longhaul"
    "${one} the server: coordinator, owner of shards or standby."
    "${account}")
lh_package(worker longhaul-worker net "worker of a Longhaul region"
    "${one} the worker of a region, with a trainer of its own."
    "${account}")
lh_package(tool longhaul net "operator's tool of Longhaul"
    "${one} the tool that starts, shows and steers runs."
    "iproute2")
if(TARGET longhaul_cuda)
    lh_package(cuda longhaul-cuda net "CUDA plugins of the Longhaul worker"
        "${one} the plugins by which a worker uses NVIDIA GPUs."
        "longhaul-worker (= ${PROJECT_VERSION}), libc6 (>= 2.35)")
endif()
lh_package(lib liblonghaul1 libs "library by which a training loop takes part in a Longhaul run"
    "${one} the shared library. It needs the C library alone."
    "libc6 (>= 2.17)")
lh_package(dev liblonghaul-dev libdevel "development files of liblonghaul"
    "${one} the header and what a linker needs."
    "liblonghaul1 (= ${PROJECT_VERSION})")
lh_package(python python3-longhaul python "PyTorch and JAX loops in a Longhaul run"
    "${one} the Python modules; it brings no PyTorch."
    "python3, liblonghaul1 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(scripts ${CMAKE_SOURCE_DIR}/deploy/debian)
# With SHLIBDEPS CPack would write scripts that call ldconfig, which are triggers today.
set(CPACK_DEBIAN_LIB_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_LIB_PACKAGE_CONTROL_EXTRA ${scripts}/triggers ${scripts}/shlibs)
set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS OFF)
foreach(kind server worker)
    string(TOUPPER ${kind} upper)
    configure_file(${scripts}/postinst.in ${made}/${kind}/postinst @ONLY)
    set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${made}/${kind}/postinst)
endforeach()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/worker/python/longhaul DESTINATION lib/python3/dist-packages
    COMPONENT python EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.py" PATTERN "py.typed")
include(CPack)
