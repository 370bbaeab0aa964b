// Results in the output formats of -w. Main thread only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "command.h"

namespace engramutl {

// One value of a result under the names it has in each format.
struct Field {
  std::string_view field_name;   // of -w fields
  std::string_view json_name;    // of -w json
  std::string_view column_name;  // of -w table
  std::string text;              // in simple and table
  std::string plain;             // in json and fields; a JSON value
  std::string field_text = {};   // in fields, where it differs from `plain`
};

// Writes one line, object or table to standard output; the exit status: 4 for a format that there
// is not.
int PrintResult(const engramctl::Invocation& invocation, const std::vector<Field>& fields);

// To standard output, flushed.
void Emit(std::string_view text);

}  // namespace engramutl
