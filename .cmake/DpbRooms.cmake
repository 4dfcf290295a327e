# dpb_room(NAME SOURCES a.c b.c [DEPENDS dpb_base ...] [PRIVATE PkgConfig::x ...] [IN_MODULE])
# One static library; its public headers lie in the room's root, which becomes an include folder.
# IN_MODULE: the CUDA module gets a copy of it too, from which nothing is exported.
function(dpb_room name)
    cmake_parse_arguments(ROOM "IN_MODULE" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
    add_library(${name} STATIC ${ROOM_SOURCES})
    if(ROOM_IN_MODULE)
        set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON
                C_VISIBILITY_PRESET hidden)
    endif()
    target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${ROOM_DEPENDS} PRIVATE dpb_flags ${ROOM_PRIVATE})
endfunction()

# dpb_test(name SOURCES t.c LINK dpb_base ... [LABELS threads] [TIMEOUT seconds])
# One cmocka program under ctest; it ends with status 77 to say that it skips. Label "threads":
# also run under ThreadSanitizer by .ci/run. The time-out is for tests that hang: several times what
# a loaded machine with a sanitizer needs.
function(dpb_test name)
    cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;LINK;LABELS;ARGUMENTS" ${ARGN})
    if(NOT DPB_TESTS)
        return()
    endif()
    add_executable(${name} ${TEST_SOURCES})
    target_link_libraries(${name} PRIVATE dpb_flags dpb_testing ${TEST_LINK})
    add_test(NAME ${name} COMMAND ${name} ${TEST_ARGUMENTS})
    if(NOT TEST_TIMEOUT)
        set(TEST_TIMEOUT 400)
    endif()
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${TEST_TIMEOUT}
            LABELS "unit;${TEST_LABELS}")
endfunction()

# dpb_embed(target symbol file): the file's bytes as `const char symbol[]` (terminated) and
# `const size_t symbol_bytes`, remade when the file changes.
function(dpb_embed target symbol file)
    set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.c)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n"
            bytes "${bytes}")
    file(CONFIGURE OUTPUT ${output} CONTENT
"#include <stddef.h>
extern const char ${symbol}[];
extern const size_t ${symbol}_bytes;
const char ${symbol}[] = {
${bytes}0};
const size_t ${symbol}_bytes = sizeof(${symbol}) - 1;
")
    target_sources(${target} PRIVATE ${output})
endfunction()
