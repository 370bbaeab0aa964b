#include "print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "text.h"

namespace engramutl {
namespace {

std::string Repeated(std::string_view text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

// One row below its header in a frame; the header centred, the values to the right.
std::string Table(const std::vector<Field>& fields) {
  std::string top, header, rule, row, bottom;
  for (const Field& field : fields) {
    const size_t name_width = engramctl::CharacterCount(field.column_name);
    const size_t text_width = engramctl::CharacterCount(field.text);
    const size_t width = std::max(name_width, text_width);
    const size_t left = (width - name_width) / 2;
    const std::string line = Repeated("─", width + 2);
    const bool first = top.empty();
    top += (first ? "┌" : "┬") + line;
    header += fmt::format("│ {}{}{} ", std::string(left, ' '), field.column_name,
                          std::string(width - name_width - left, ' '));
    rule += (first ? "├" : "┼") + line;
    row += fmt::format("│ {}{} ", std::string(width - text_width, ' '), field.text);
    bottom += (first ? "└" : "┴") + line;
  }
  return top + "┐\n" + header + "│\n" + rule + "┤\n" + row + "│\n" + bottom + "┘\n";
}

}  // namespace

void Emit(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int PrintResult(const engramctl::Invocation& invocation, const std::vector<Field>& fields) {
  const std::string& format = invocation.flags->String("write-out");
  std::string out;
  if (format == "simple") {
    for (const Field& field : fields) out += (out.empty() ? "" : ", ") + field.text;
    out += '\n';
  } else if (format == "json") {
    for (const Field& field : fields) {
      out += fmt::format("{}\"{}\":{}", out.empty() ? "{" : ",", field.json_name, field.plain);
    }
    out += "}\n";
  } else if (format == "fields") {
    for (const Field& field : fields) {
      out += fmt::format("\"{}\" : {}\n", field.field_name,
                         field.field_text.empty() ? field.plain : field.field_text);
    }
  } else if (format == "table") {
    out = Table(fields);
  } else if (format == "protobuf") {
    return engramctl::Fail(engramctl::kExitBadFeature, "protobuf not supported as output format");
  } else {
    return engramctl::Fail(engramctl::kExitBadFeature, "unsupported output format");
  }
  Emit(out);
  return engramctl::kExitOk;
}

}  // namespace engramutl
