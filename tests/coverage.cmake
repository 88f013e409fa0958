# Stage coverage (coverage.py --whole): every branch of these files is taken by these tests alone,
# none of which starts a cluster, whose seeds may take another way tomorrow. covered_NAME is NAME
# with gcov's counters in these files; the rest of it is the build's.
set(whole server/wal/wal.c server/wal/wal_scan.c common/format/ledger.c server/push/decide.c
    kernels/storage/checkpoint.c kernels/storage/checkpoint_read.c)
set(programs unit_wal unit_wal_ahead unit_wal_bounds unit_wal_scan unit_ledger unit_ledger_bounds
    unit_decide unit_decide_norms unit_charge unit_grants unit_checkpoint unit_checkpoint_folder
    unit_checkpoint_command unit_log_command fault_log)
list(TRANSFORM whole PREPEND ${CMAKE_SOURCE_DIR}/)
add_library(covered OBJECT ${whole})
target_link_libraries(covered PRIVATE lh_flags)
target_compile_options(covered PRIVATE --coverage ${LH_UNOPTIMISED})
foreach(program ${programs} golden_read)
    get_target_property(sources ${program} SOURCES)
    get_target_property(from ${program} SOURCE_DIR)
    list(TRANSFORM sources PREPEND ${from}/ REGEX "^[^/]")
    add_executable(covered_${program} ${sources} $<TARGET_OBJECTS:covered>)
    target_link_libraries(covered_${program} PRIVATE $<TARGET_PROPERTY:${program},LINK_LIBRARIES>)
    target_link_options(covered_${program} PRIVATE --coverage
        $<TARGET_PROPERTY:${program},LINK_OPTIONS>)
endforeach()
foreach(program ${programs})
    add_test(NAME coverage.${program} COMMAND covered_${program}
        WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(coverage.${program} PROPERTIES LABELS coverage TIMEOUT 300)
endforeach()
file(GLOB goldens ${CMAKE_SOURCE_DIR}/tests/fixtures/history/*)
foreach(golden ${goldens})
    get_filename_component(name ${golden} NAME)
    add_test(NAME coverage.golden_${name} COMMAND covered_golden_read ${golden})
    set_tests_properties(coverage.golden_${name} PROPERTIES LABELS coverage TIMEOUT 300)
endforeach()
