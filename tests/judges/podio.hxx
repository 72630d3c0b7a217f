// The classes that podio's files have, and values as JSON. What podio's reader does is in podio_read.py.
#pragma once

#include <array>
#include <cstdint>
#include <ostream>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace podio {
struct ObjectID {
  int index{-1};
  std::uint32_t collectionID{static_cast<std::uint32_t>(-1)};
};

struct LinkData {
  float weight{};
};

namespace root_utils {
struct CollectionWriteInfo {
  std::uint32_t collectionID{static_cast<std::uint32_t>(-1)};
  std::string dataType{};
  bool isSubset{false};
  unsigned int schemaVersion{0};
  std::string name{};
  std::string storageType{};
};
} // namespace root_utils
} // namespace podio

namespace judge {
template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
void json(std::ostream &out, T value) {
  if constexpr (std::is_same_v<T, bool>)
    out << (value ? "true" : "false");
  else if constexpr (std::is_floating_point_v<T>)
    value == value ? out << static_cast<double>(value) : out << "NaN";
  else
    out << +value;
}

inline void json(std::ostream &out, const std::string &text) {
  out << '"';
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20)
      out << "\\u00" << "0123456789abcdef"[c >> 4] << "0123456789abcdef"[c & 15];
    else
      out << (c == '"' || c == '\\' ? "\\" : "") << c;
  }
  out << '"';
}

inline void json(std::ostream &out, const podio::ObjectID &id) {
  out << "{\"index\": " << id.index << ", \"collectionID\": " << id.collectionID << "}";
}

inline void json(std::ostream &out, const podio::LinkData &link) {
  out << "{\"weight\": ";
  json(out, link.weight);
  out << "}";
}

inline void json(std::ostream &out, const std::tuple<std::string, std::string> &pair) {
  out << "[";
  json(out, std::get<0>(pair));
  out << ", ";
  json(out, std::get<1>(pair));
  out << "]";
}

inline void json(std::ostream &out, const podio::root_utils::CollectionWriteInfo &info) {
  out << "{\"collectionID\": " << info.collectionID << ", \"dataType\": ";
  json(out, info.dataType);
  out << ", \"isSubset\": " << (info.isSubset ? "true" : "false") << ", \"schemaVersion\": " << info.schemaVersion;
  out << ", \"name\": ";
  json(out, info.name);
  out << ", \"storageType\": ";
  json(out, info.storageType);
  out << "}";
}
} // namespace judge
