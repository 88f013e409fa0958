# The CUDA sources as plain C++ on fibres, for machines without a GPU: included by the folders whose
# tests use it. `cuda` lists the sources; without a C++ compiler there is no lh_simt_library(). The
# C++ compiler is the C compiler's sibling, so that sanitizers match.
include(CheckLanguage)
if(NOT CMAKE_CXX_COMPILER)
    if(CMAKE_C_COMPILER_ID STREQUAL "Clang")
        string(REPLACE "clang" "clang++" sibling "${CMAKE_C_COMPILER}")
    else()
        string(REGEX REPLACE "gcc|cc$" "g++" sibling "${CMAKE_C_COMPILER}")
    endif()
    if(EXISTS ${sibling})
        set(CMAKE_CXX_COMPILER ${sibling} CACHE FILEPATH "" FORCE)
    endif()
endif()
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
    message(STATUS "No C++ compiler: the CUDA kernels are not tested")
    return()
endif()
enable_language(CXX)
# Compiles .cu files as C++ with the stand-in before nvcc's headers. `root` is searched first.
function(lh_simt_library name root)
    add_library(${name} OBJECT ${ARGN})
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
    target_compile_features(${name} PRIVATE cxx_std_17)
    target_include_directories(${name} PRIVATE ${root} ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/tests/simt)
    target_compile_options(${name} PRIVATE -x c++ -Wall -Wextra -Wshadow -Werror -Wno-unknown-pragmas
        -Wno-unused-function -ffp-contract=off -fno-strict-aliasing -O2)
    if(CMAKE_C_COMPILER_ID STREQUAL "Clang")
        target_compile_options(${name} PRIVATE -Wno-pass-failed)
    endif()
    if(LH_SANITIZE STREQUAL "thread")
        # It follows each thread's stack, and fibres have their own: only the calling threads are
        # seen.
        target_compile_options(${name} PRIVATE -fno-sanitize=thread)
    elseif(LH_SANITIZE)
        target_compile_options(${name} PRIVATE -fsanitize=${LH_SANITIZE} -fno-sanitize-recover=all
            -fno-omit-frame-pointer -O1)
        # Type checks of the standard library's function objects would need its own build.
        target_compile_options(${name} PRIVATE -fno-sanitize=vptr)
        if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang") # programs in C lack that part of its runtime
            target_compile_options(${name} PRIVATE -fno-sanitize=function)
        endif()
        # The scheduler is not under test, and is most of what runs.
        foreach(source ${ARGN})
            if(source MATCHES "fibre\\.cu$" AND LH_SANITIZE MATCHES "address")
                set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
                    "-fno-sanitize=all;-O2;-DSIMT_ASAN=1")
            endif()
        endforeach()
    endif()
endfunction()

file(GLOB cuda CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
