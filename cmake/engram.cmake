# How a layer becomes a library.
#
#   engram_library(bolt DEPS base EXTERNAL absl::status)
#
# compiles src/<name>/*.cc (less *_test.cc, *_benchmark.cc) and makes <name>_test from the *_test.cc. A layer sees
# only the headers of the layers it names in DEPS (and of theirs): each layer has an include root of its own
# that holds nothing but a link named like the layer, so an include that goes past the link list does not compile.

# Designated initialisers leave members to their defaults on purpose.
set(ENGRAM_WARNINGS -Wall -Wextra -Wconversion -Wshadow -Werror -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false positives of these in inlined standard library code.
  list(APPEND ENGRAM_WARNINGS -Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds
       -Wno-stringop-overread -Wno-dangling-pointer)
endif()

# Headers that nearly every file reads, parsed once: a third of a cold build was reading them. Only GCC's builds use them; the fuzz preset
# is built without, so an include that is missing is still found.
function(engram_precompiled name)
  cmake_parse_arguments(arg "" "" "LINK;OPTIONS;HEADERS" ${ARGN})
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cc CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE ${arg_LINK})
  target_compile_options(${name} PRIVATE ${ENGRAM_WARNINGS} ${arg_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()
set(ENGRAM_COMMON_HEADERS <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring> <deque> <functional> <map> <memory> <mutex> <optional> <set>
    <span> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector> <absl/functional/any_invocable.h> <absl/functional/function_ref.h>
    <absl/status/status.h> <absl/status/statusor.h> <fmt/format.h> <google/protobuf/message.h> <google/protobuf/generated_message_util.h>
    <google/protobuf/repeated_field.h> <google/protobuf/unknown_field_set.h> <nlohmann/json.hpp>)
# Tests spend their time in the libraries: half the optimisation is half the compile time of theirs.
set(ENGRAM_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(common_libraries absl::any_invocable absl::function_ref absl::status absl::statusor fmt::fmt protobuf::libprotobuf nlohmann_json::nlohmann_json)
  engram_precompiled(engram_common_headers LINK ${common_libraries} HEADERS ${ENGRAM_COMMON_HEADERS})
  engram_precompiled(engram_test_headers LINK ${common_libraries} GTest::gmock OPTIONS ${ENGRAM_TEST_OPTIONS}
                     HEADERS ${ENGRAM_COMMON_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)
endif()

# How our own code is compiled: warnings, and the headers above. For tests engram_compile_test.
function(engram_compile target)
  target_compile_options(${target} PRIVATE ${ENGRAM_WARNINGS})
  if(TARGET engram_common_headers)
    target_precompile_headers(${target} REUSE_FROM engram_common_headers)
  endif()
endfunction()
function(engram_compile_test target)
  target_compile_options(${target} PRIVATE ${ENGRAM_WARNINGS} ${ENGRAM_TEST_OPTIONS})
  if(TARGET engram_test_headers)
    target_precompile_headers(${target} REUSE_FROM engram_test_headers)
  endif()
endfunction()

function(engram_include_root name out)
  set(root ${CMAKE_BINARY_DIR}/include/${name})
  file(MAKE_DIRECTORY ${root})
  if(NOT EXISTS ${root}/${name})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${root}/${name} SYMBOLIC)
  endif()
  set(${out} ${root} PARENT_SCOPE)
endfunction()

# TEST_DEPS: what only the tests may use. LABELS: ctest labels of the unit test.
function(engram_library name)
  cmake_parse_arguments(arg "" "" "DEPS;EXTERNAL;TEST_DEPS;LABELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|benchmark)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  engram_include_root(${name} root)
  if(sources)
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PUBLIC ${root})
    target_link_libraries(${name} PUBLIC ${arg_DEPS} ${arg_EXTERNAL})
    engram_compile(${name})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${root})
    target_link_libraries(${name} INTERFACE ${arg_DEPS} ${arg_EXTERNAL})
  endif()
  if(tests AND BUILD_TESTING AND NOT ENGRAM_FUZZ)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE ${name} ${arg_TEST_DEPS} GTest::gmock GTest::gtest_main)
    engram_compile_test(${name}_test)
    target_compile_definitions(${name}_test PRIVATE ENGRAM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    add_test(NAME ${name}_test COMMAND ${name}_test)
    set_tests_properties(${name}_test PROPERTIES LABELS "unit;${arg_LABELS}" TIMEOUT 600)
  endif()
endfunction()

# engram_fuzz(NAME SOURCE DEPS...): a libFuzzer target `fuzz_NAME`; its corpus is tests/fuzz/corpus/NAME.
function(engram_fuzz name source)
  if(NOT ENGRAM_FUZZ)
    return()
  endif()
  add_executable(fuzz_${name} ${source})
  target_link_libraries(fuzz_${name} PRIVATE ${ARGN})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  engram_compile(fuzz_${name})
endfunction()

# engram_benchmark(NAME SOURCE DEPS...): a program that measures one layer; bench/README.md lists them.
function(engram_benchmark name source)
  if(NOT BUILD_BENCHMARKS)
    return()
  endif()
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${ARGN})
  engram_compile(${name})
endfunction()
