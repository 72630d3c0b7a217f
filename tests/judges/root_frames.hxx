// Fingerprints of columns of a data frame, whatever their types are, which do not depend on the order of entries.

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <ROOT/RDataFrame.hxx>
#include <ROOT/RVec.hxx>

namespace judge {

inline ULong64_t mixed(ULong64_t value)
{
   value ^= value >> 31;
   value *= 0x9e3779b97f4a7c15;
   return value ^ value >> 29;
}

template <typename T>
ULong64_t print_of(const T &value)
{
   if constexpr (std::is_arithmetic_v<T>) {
      return mixed(std::hash<T>()(value) + 1);
   } else if constexpr (std::is_enum_v<T>) {
      return print_of(std::underlying_type_t<T>(value));
   } else if constexpr (std::is_same_v<T, std::string>) {
      return mixed(std::hash<std::string>()(value));
   } else {
      ULong64_t print = 17;
      for (const auto &item : value)
         print = mixed(print + print_of(item));
      return print;
   }
}

template <typename T>
ULong64_t print_of(const std::optional<T> &value)
{
   return value ? mixed(print_of(*value)) : 5;
}

template <typename... T>
ROOT::RVec<ULong64_t> prints(const T &...columns)
{
   return {print_of(columns)...};
}

/// The number of entries, and for each column the sum of its fingerprints.
inline std::vector<ULong64_t> sums(ROOT::RDF::RNode frame)
{
   std::vector<std::vector<ULong64_t>> slots(frame.GetNSlots());
   frame.ForeachSlot(
      [&slots](unsigned slot, const ROOT::RVec<ULong64_t> &prints) {
         slots[slot].resize(prints.size() + 1);
         ++slots[slot][0];
         for (std::size_t column = 0; column < prints.size(); ++column)
            slots[slot][column + 1] += prints[column];
      },
      {"prints"});
   std::vector<ULong64_t> sums(1);
   for (const auto &slot : slots) {
      sums.resize(std::max(sums.size(), slot.size()));
      for (std::size_t at = 0; at < slot.size(); ++at)
         sums[at] += slot[at];
   }
   return sums;
}

} // namespace judge
