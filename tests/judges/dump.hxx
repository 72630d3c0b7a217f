// Dumps the entries of any RNTuple, read by ROOT itself, as JSON lines in the format of tests/judges/README.md.
// Fields are visited by their structure, so undeclared classes are dumped as well.

#include <ROOT/RField.hxx>
#include <ROOT/RNTupleModel.hxx>
#include <ROOT/RNTupleReader.hxx>
#include <TBufferFile.h>
#include <TClass.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <string>

namespace judge {

using Value = ROOT::RFieldBase::RValue;

inline void put_string(std::string &out, const std::string &text)
{
   out += '"';
   for (unsigned char c : text) {
      if (c == '"' || c == '\\') {
         out += '\\';
         out += c;
      } else if (c < 0x20) {
         char escaped[8];
         std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
         out += escaped;
      } else {
         out += c;
      }
   }
   out += '"';
}

inline void put_real(std::string &out, double value)
{
   if (std::isnan(value)) {
      out += "\"nan\"";
   } else if (std::isinf(value)) {
      out += value < 0 ? "\"-inf\"" : "\"inf\"";
   } else {
      char text[40];
      std::snprintf(text, sizeof(text), "%.17g", value);
      out += text;
      // Python would read "-0" as an integer and lose the sign.
      if (std::string(text).find_first_of(".e") == std::string::npos)
         out += ".0";
   }
}

template <typename T>
void put_integer(std::string &out, const void *where)
{
   out += std::to_string(*static_cast<const T *>(where));
}

using Put = std::function<void(std::string &, const void *)>;

inline const std::map<std::string, Put> &leaves()
{
   static const std::map<std::string, Put> table{
      {"bool", [](std::string &out, const void *p) { out += *static_cast<const bool *>(p) ? "true" : "false"; }},
      {"char", put_integer<unsigned char>},
      {"std::byte", put_integer<std::uint8_t>},
      {"std::int8_t", put_integer<std::int8_t>},
      {"std::uint8_t", put_integer<std::uint8_t>},
      {"std::int16_t", put_integer<std::int16_t>},
      {"std::uint16_t", put_integer<std::uint16_t>},
      {"std::int32_t", put_integer<std::int32_t>},
      {"std::uint32_t", put_integer<std::uint32_t>},
      {"std::int64_t", put_integer<std::int64_t>},
      {"std::uint64_t", put_integer<std::uint64_t>},
      {"ROOT::RNTupleCardinality<std::uint32_t>", put_integer<std::uint32_t>},
      {"ROOT::RNTupleCardinality<std::uint64_t>", put_integer<std::uint64_t>},
      {"float", [](std::string &out, const void *p) { put_real(out, *static_cast<const float *>(p)); }},
      {"double", [](std::string &out, const void *p) { put_real(out, *static_cast<const double *>(p)); }},
      {"std::string", [](std::string &out, const void *p) { put_string(out, *static_cast<const std::string *>(p)); }},
   };
   return table;
}

inline bool starts_with(const std::string &text, const char *prefix)
{
   return text.rfind(prefix, 0) == 0;
}

inline void put(std::string &out, const Value &value);

inline void put_list(std::string &out, const std::vector<Value> &items)
{
   out += '[';
   for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0)
         out += ',';
      put(out, items[i]);
   }
   out += ']';
}

inline void put_record(std::string &out, const std::vector<Value> &members)
{
   out += '{';
   for (std::size_t i = 0; i < members.size(); ++i) {
      if (i > 0)
         out += ',';
      put_string(out, members[i].GetField().GetFieldName());
      out += ':';
      put(out, members[i]);
   }
   out += '}';
}

// ROOT's serialisation of the object: the bytes that the field holds on disk.
inline void put_streamed(std::string &out, const ROOT::RStreamerField &field, const Value &value)
{
   TBufferFile buffer(TBuffer::kWrite, field.GetValueSize());
   field.GetClass()->Streamer(value.GetPtr<void>().get(), buffer);
   out += '[';
   for (int i = 0; i < buffer.Length(); ++i) {
      if (i > 0)
         out += ',';
      out += std::to_string(static_cast<std::uint8_t>(buffer.Buffer()[i]));
   }
   out += ']';
}

inline void put_bits(std::string &out, std::size_t bits, const void *where)
{
   const auto *words = static_cast<const unsigned long *>(where);
   constexpr std::size_t width = 8 * sizeof(unsigned long);
   out += '[';
   for (std::size_t i = 0; i < bits; ++i) {
      if (i > 0)
         out += ',';
      out += ((words[i / width] >> (i % width)) & 1) ? "true" : "false";
   }
   out += ']';
}

// ROOT does not take variants apart. In the GNU library's layout the union of the alternatives comes first and one
// byte with the index of the alternative follows; 255 says that there is no value.
inline void put_variant(std::string &out, const Value &value)
{
   const auto alternatives = const_cast<ROOT::RFieldBase &>(value.GetField()).GetMutableSubfields();
   std::size_t size = 0, alignment = 1;
   for (const auto *alternative : alternatives) {
      size = std::max(size, alternative->GetValueSize());
      alignment = std::max(alignment, alternative->GetAlignment());
   }
   const auto object = value.GetPtr<void>();
   const auto index = static_cast<const std::uint8_t *>(object.get())[(size + alignment - 1) / alignment * alignment];
   if (index >= alternatives.size()) {
      out += "null";
      return;
   }
   put_record(out, {alternatives[index]->BindValue(object)});
}

inline void put(std::string &out, const Value &value)
{
   const auto &field = value.GetField();
   const auto &type = field.GetTypeName();
   const auto leaf = leaves().find(type);
   if (leaf != leaves().end())
      return leaf->second(out, value.GetPtr<void>().get());
   if (starts_with(type, "std::bitset<"))
      return put_bits(out, std::stoul(type.substr(12)), value.GetPtr<void>().get());
   if (const auto *streamer = dynamic_cast<const ROOT::RStreamerField *>(&field))
      return put_streamed(out, *streamer, value);
   if (field.GetStructure() == ROOT::ENTupleStructure::kVariant)
      return put_variant(out, value);
   const auto parts = field.SplitValue(value);
   if (starts_with(type, "std::optional<") || starts_with(type, "std::unique_ptr<")) {
      if (parts.empty())
         out += "null";
      else
         put(out, parts[0]);
      return;
   }
   switch (field.GetStructure()) {
   case ROOT::ENTupleStructure::kCollection: return put_list(out, parts);
   case ROOT::ENTupleStructure::kRecord: return put_record(out, parts);
   default: break;
   }
   // The remaining fields are arrays, or wrappers of one value such as enumerations and atomics.
   if (starts_with(type, "std::array<") || field.GetNRepetitions() > 0 || type == "std::vector<bool>")
      return put_list(out, parts);
   if (parts.size() == 1)
      return put(out, parts[0]);
   throw std::runtime_error("no rule for the type " + type);
}

inline void dump(const std::string &file, const std::string &name, const std::string &target)
{
   ROOT::RNTupleDescriptor::RCreateModelOptions options;
   options.SetEmulateUnknownTypes(true);
   auto reader = ROOT::RNTupleReader::Open(options, name, file);
   std::ofstream lines(target);
   const auto &entry = reader->GetModel().GetDefaultEntry();
   for (auto index : reader->GetEntryRange()) {
      reader->LoadEntry(index);
      std::string line = "{";
      for (const auto &value : entry) {
         if (line.size() > 1)
            line += ',';
         put_string(line, value.GetField().GetFieldName());
         line += ':';
         put(line, value);
      }
      lines << line << "}\n";
   }
   lines.close();
   if (!lines)
      throw std::runtime_error("could not write " + target);
}

} // namespace judge
