// What real ROOT reads from any RNTuple; the functions are compiled, since the interpreter would take seconds in each
// process.
#pragma once

#include <string>

namespace judge {

// Writes the entries as JSON lines, in the format of tests/judges/README.md.
void dump(const std::string &file, const std::string &name, const std::string &target);

// The sums of sums.py as a JSON object.
std::string sums(const std::string &file, const std::string &name);

} // namespace judge
