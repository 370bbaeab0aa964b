// engramctl: command line client of an Engram or etcd cluster. Started under the name etcdctl it
// answers as that.
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"

int main(int argc, char** argv) {
  std::string_view program = argc > 0 ? argv[0] : "engramctl";
  program = program.substr(program.rfind('/') + 1);
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return engramctl::RunCommandLine(engramctl::RootCommand(program), program, arguments);
}
