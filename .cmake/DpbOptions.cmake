# Build options, compilers' warnings, sanitizers and the libraries, each found once, here.
# DPB_* options for optional parts are AUTO (use it where it is found), ON (fail without), OFF.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    # An unset build type would mean no optimisation at all.
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(DPB_TESTS "Build the tests" ON)
option(DPB_WERROR "Warnings are errors" OFF)
set(DPB_SANITIZE "" CACHE STRING "Sanitizers, for example address,undefined or thread")

# dpb_feature(name found reason): one line of the summary at the end of configuring.
function(dpb_feature name found reason)
    if(found)
        set(mark "✓")
    else()
        set(mark "✗")
    endif()
    set_property(GLOBAL APPEND_STRING PROPERTY dpb_features "  ${mark} ${name}: ${reason}\n")
endfunction()

function(dpb_summary)
    get_property(features GLOBAL PROPERTY dpb_features)
    message(STATUS "dpbench ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, ${CMAKE_C_COMPILER_ID} "
            "${CMAKE_C_COMPILER_VERSION}\n${features}")
endfunction()

# Flags that every target of ours gets.
add_library(dpb_flags INTERFACE)
target_compile_definitions(dpb_flags INTERFACE _GNU_SOURCE)
target_compile_options(dpb_flags INTERFACE -Wall -Wextra -Wshadow -Wpointer-arith -Wvla
        -fno-omit-frame-pointer
        $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>)
if(DPB_WERROR)
    target_compile_options(dpb_flags INTERFACE -Werror)
endif()
if(DPB_SANITIZE)
    target_compile_options(dpb_flags INTERFACE -fsanitize=${DPB_SANITIZE} -fno-sanitize-recover=all)
    target_link_options(dpb_flags INTERFACE -fsanitize=${DPB_SANITIZE})
    dpb_feature("sanitizers" TRUE "${DPB_SANITIZE}")
endif()

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson>=2.12)
pkg_check_modules(libfyaml REQUIRED IMPORTED_TARGET libfyaml>=0.7)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc>=2.0)
pkg_check_modules(smartcols REQUIRED IMPORTED_TARGET smartcols>=2.30)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(sqlite3 REQUIRED IMPORTED_TARGET sqlite3>=3.24)
pkg_check_modules(libsodium REQUIRED IMPORTED_TARGET libsodium>=1.0.16)
# Not find_package(dnnl): Debian's package file also demands OpenCL's headers, which nothing here
# uses and which are not installed with libdnnl-dev.
find_path(DPB_DNNL_INCLUDE oneapi/dnnl/dnnl_version.h REQUIRED)
find_library(DPB_DNNL_LIBRARY dnnl REQUIRED)
file(STRINGS ${DPB_DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h dnnl_VERSION
        REGEX "^#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM dnnl_VERSION REPLACE "^[^0-9]+" "")
list(JOIN dnnl_VERSION "." dnnl_VERSION)
string(REGEX MATCH "^[0-9]+" dnnl_VERSION_MAJOR "${dnnl_VERSION}")
if(dnnl_VERSION VERSION_LESS 2.6 OR dnnl_VERSION VERSION_GREATER_EQUAL 4)
    message(FATAL_ERROR "oneDNN 2.6 or later, or 3.x, is needed; ${DPB_DNNL_INCLUDE} has "
            "${dnnl_VERSION}, whose C interface the CPU device does not speak. Debian, Ubuntu and "
            "others have it as a package; of one elsewhere give -DDPB_DNNL_INCLUDE=... "
            "-DDPB_DNNL_LIBRARY=...")
endif()
file(STRINGS ${DPB_DNNL_INCLUDE}/oneapi/dnnl/dnnl_config.h dnnl_OPENMP
        REGEX "^#define DNNL_CPU_THREADING_RUNTIME DNNL_RUNTIME_OMP$")
if(NOT dnnl_OPENMP)
    message(FATAL_ERROR "oneDNN ${dnnl_VERSION} in ${DPB_DNNL_INCLUDE} is not built with OpenMP, "
            "whose threads the CPU device shares with it; packages of Debian and Ubuntu are. Give "
            "another one with -DDPB_DNNL_INCLUDE=... -DDPB_DNNL_LIBRARY=...")
endif()
add_library(DNNL::dnnl UNKNOWN IMPORTED GLOBAL)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DPB_DNNL_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${DPB_DNNL_INCLUDE})
find_package(ZLIB REQUIRED)
foreach(library jansson libfyaml hwloc smartcols xxhash sqlite3 libsodium)
    dpb_feature(${library} TRUE "${${library}_VERSION}")
endforeach()
dpb_feature("oneDNN" TRUE "${dnnl_VERSION}")
dpb_feature("zlib" TRUE "${ZLIB_VERSION_STRING}")

# An option of an optional part.
macro(dpb_auto name text)
    set(DPB_${name} AUTO CACHE STRING "${text}: AUTO, ON or OFF")
    set_property(CACHE DPB_${name} PROPERTY STRINGS AUTO ON OFF)
endmacro()

dpb_auto(MICRO "Microbenchmarks with Google Benchmark")
if(DPB_MICRO STREQUAL "OFF")
    dpb_feature("microbenchmarks" FALSE "DPB_MICRO=OFF")
else()
    find_package(benchmark QUIET)
    if(benchmark_FOUND)
        dpb_feature("microbenchmarks" TRUE "Google Benchmark ${benchmark_VERSION}")
    elseif(DPB_MICRO STREQUAL "ON")
        message(FATAL_ERROR "DPB_MICRO=ON, but Google Benchmark is not installed (libbenchmark-dev)")
    else()
        dpb_feature("microbenchmarks" FALSE "Google Benchmark not found (libbenchmark-dev)")
    endif()
endif()

find_program(DPB_GNUPLOT gnuplot)
if(DPB_GNUPLOT)
    dpb_feature("gnuplot" TRUE "${DPB_GNUPLOT}; looked for again at run time")
else()
    dpb_feature("gnuplot" FALSE "not found (gnuplot-nox): reports come without plots")
endif()

if(DPB_TESTS)
    pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka>=1.1.5)
    dpb_feature("cmocka" TRUE "${cmocka_VERSION}")
    find_program(DPB_BATS bats)
    if(DPB_BATS)
        dpb_feature("bats" TRUE "${DPB_BATS}")
    else()
        dpb_feature("bats" FALSE "not found (bats): the command-line tests are not run")
    endif()
endif()

# What every unit test links: cmocka behind harness/base/dpb_test.h.
add_library(dpb_testing INTERFACE)
if(DPB_TESTS)
    target_link_libraries(dpb_testing INTERFACE PkgConfig::cmocka)
    target_include_directories(dpb_testing INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/harness/base)
endif()
