// Compiled into the library of dictionary.py. Fields are visited by their structure, so undeclared classes are
// visited as well.

#include "dump.hxx"

#include <ROOT/RField.hxx>
#include <ROOT/RNTupleModel.hxx>
#include <ROOT/RNTupleReader.hxx>
#include <TBufferFile.h>
#include <TClass.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using Value = ROOT::RFieldBase::RValue;

// What is done with the values of an entry, in their order.
class Visitor {
public:
   virtual ~Visitor() = default;
   virtual void null() = 0;
   virtual void boolean(bool value) = 0;
   virtual void integer(std::int64_t value) = 0;
   virtual void natural(std::uint64_t value) = 0;
   virtual void real(double value) = 0;
   virtual void text(const std::string &value) = 0;
   virtual void list(std::size_t size, const std::function<void(std::size_t)> &item) = 0;
   virtual void record(std::size_t size, const std::function<std::string(std::size_t)> &name,
                       const std::function<void(std::size_t)> &member) = 0;
};

std::string digits(double value)
{
   char text[40];
   std::snprintf(text, sizeof(text), "%.17g", value);
   return text;
}

// Writes them as JSON.
class Json : public Visitor {
public:
   std::string out;

   void null() override { out += "null"; }
   void boolean(bool value) override { out += value ? "true" : "false"; }
   void integer(std::int64_t value) override { out += std::to_string(value); }
   void natural(std::uint64_t value) override { out += std::to_string(value); }
   void real(double value) override
   {
      if (std::isnan(value)) {
         out += "\"nan\"";
      } else if (std::isinf(value)) {
         out += value < 0 ? "\"-inf\"" : "\"inf\"";
      } else {
         const auto text = digits(value);
         out += text;
         // Python would read "-0" as an integer and lose the sign.
         if (text.find_first_of(".e") == std::string::npos)
            out += ".0";
      }
   }
   void text(const std::string &value) override
   {
      out += '"';
      for (unsigned char c : value) {
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
   void list(std::size_t size, const std::function<void(std::size_t)> &item) override
   {
      out += '[';
      for (std::size_t i = 0; i < size; ++i) {
         if (i > 0)
            out += ',';
         item(i);
      }
      out += ']';
   }
   void record(std::size_t size, const std::function<std::string(std::size_t)> &name,
               const std::function<void(std::size_t)> &member) override
   {
      out += '{';
      for (std::size_t i = 0; i < size; ++i) {
         if (i > 0)
            out += ',';
         text(name(i));
         out += ':';
         member(i);
      }
      out += '}';
   }
};

// Adds them up by path, as sums.py defines it.
class Sums : public Visitor {
public:
   std::map<std::string, std::array<double, 3>> found;

   void null() override {}
   void boolean(bool value) override { add(fPath, value, value); }
   void integer(std::int64_t value) override { real(static_cast<double>(value)); }
   void natural(std::uint64_t value) override { real(static_cast<double>(value)); }
   void real(double value) override
   {
      if (std::isfinite(value))
         add(fPath, value, std::abs(value));
   }
   void text(const std::string &value) override
   {
      add_size(value.size());
      for (unsigned char c : value)
         natural(c);
   }
   void list(std::size_t size, const std::function<void(std::size_t)> &item) override
   {
      add_size(size);
      for (std::size_t i = 0; i < size; ++i)
         item(i);
   }
   void record(std::size_t size, const std::function<std::string(std::size_t)> &name,
               const std::function<void(std::size_t)> &member) override
   {
      const auto length = fPath.size();
      for (std::size_t i = 0; i < size; ++i) {
         if (length > 0)
            fPath += '.';
         fPath += name(i);
         member(i);
         fPath.resize(length);
      }
   }

private:
   std::string fPath;

   void add(const std::string &path, double value, double magnitude)
   {
      auto &sums = found[path];
      sums[0] += 1;
      sums[1] += value;
      sums[2] += magnitude;
   }
   void add_size(std::size_t size)
   {
      const auto number = static_cast<double>(size);
      add(fPath + '#', number, number * number);
   }
};

template <typename T>
void put_signed(Visitor &out, const void *where)
{
   out.integer(*static_cast<const T *>(where));
}

template <typename T>
void put_unsigned(Visitor &out, const void *where)
{
   out.natural(*static_cast<const T *>(where));
}

template <typename T>
void put_real(Visitor &out, const void *where)
{
   out.real(*static_cast<const T *>(where));
}

using Put = void (*)(Visitor &, const void *);

const std::unordered_map<std::string, Put> &leaves()
{
   static const std::unordered_map<std::string, Put> table{
      {"bool", [](Visitor &out, const void *p) { out.boolean(*static_cast<const bool *>(p)); }},
      {"char", put_unsigned<unsigned char>},
      {"std::byte", put_unsigned<std::uint8_t>},
      {"std::int8_t", put_signed<std::int8_t>},
      {"std::uint8_t", put_unsigned<std::uint8_t>},
      {"std::int16_t", put_signed<std::int16_t>},
      {"std::uint16_t", put_unsigned<std::uint16_t>},
      {"std::int32_t", put_signed<std::int32_t>},
      {"std::uint32_t", put_unsigned<std::uint32_t>},
      {"std::int64_t", put_signed<std::int64_t>},
      {"std::uint64_t", put_unsigned<std::uint64_t>},
      {"ROOT::RNTupleCardinality<std::uint32_t>", put_unsigned<std::uint32_t>},
      {"ROOT::RNTupleCardinality<std::uint64_t>", put_unsigned<std::uint64_t>},
      {"float", put_real<float>},
      {"double", put_real<double>},
      {"std::string", [](Visitor &out, const void *p) { out.text(*static_cast<const std::string *>(p)); }},
   };
   return table;
}

bool starts_with(const std::string &text, const char *prefix)
{
   return text.rfind(prefix, 0) == 0;
}

void put(Visitor &out, const Value &value);

void put_list(Visitor &out, const std::vector<Value> &items)
{
   out.list(items.size(), [&](std::size_t i) { put(out, items[i]); });
}

void put_record(Visitor &out, const std::vector<Value> &members)
{
   out.record(
      members.size(), [&](std::size_t i) { return members[i].GetField().GetFieldName(); },
      [&](std::size_t i) { put(out, members[i]); });
}

// ROOT's serialisation of the object: the bytes that the field holds on disk.
void put_streamed(Visitor &out, const ROOT::RStreamerField &field, const Value &value)
{
   TBufferFile buffer(TBuffer::kWrite, field.GetValueSize());
   field.GetClass()->Streamer(value.GetPtr<void>().get(), buffer);
   out.list(buffer.Length(), [&](std::size_t i) { out.natural(static_cast<std::uint8_t>(buffer.Buffer()[i])); });
}

void put_bits(Visitor &out, std::size_t bits, const void *where)
{
   const auto *words = static_cast<const unsigned long *>(where);
   constexpr std::size_t width = 8 * sizeof(unsigned long);
   out.list(bits, [&](std::size_t i) { out.boolean((words[i / width] >> (i % width)) & 1); });
}

// ROOT does not take variants apart. In the GNU library's layout the union of the alternatives comes first and one
// byte with the index of the alternative follows; 255 says that there is no value.
void put_variant(Visitor &out, const Value &value)
{
   const auto alternatives = const_cast<ROOT::RFieldBase &>(value.GetField()).GetMutableSubfields();
   std::size_t size = 0, alignment = 1;
   for (const auto *alternative : alternatives) {
      size = std::max(size, alternative->GetValueSize());
      alignment = std::max(alignment, alternative->GetAlignment());
   }
   const auto object = value.GetPtr<void>();
   const auto index = static_cast<const std::uint8_t *>(object.get())[(size + alignment - 1) / alignment * alignment];
   if (index >= alternatives.size())
      return out.null();
   put_record(out, {alternatives[index]->BindValue(object)});
}

void put(Visitor &out, const Value &value)
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
         out.null();
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

// Visits all entries, each as a record of its fields; calls `done` after each.
template <typename Done>
void visit(const std::string &file, const std::string &name, Visitor &out, Done done)
{
   ROOT::RNTupleDescriptor::RCreateModelOptions options;
   options.SetEmulateUnknownTypes(true);
   auto reader = ROOT::RNTupleReader::Open(options, name, file);
   const auto &entry = reader->GetModel().GetDefaultEntry();
   std::vector<const Value *> fields;
   for (const auto &value : entry)
      fields.push_back(&value);
   for (auto index : reader->GetEntryRange()) {
      reader->LoadEntry(index);
      out.record(
         fields.size(), [&](std::size_t i) { return fields[i]->GetField().GetFieldName(); },
         [&](std::size_t i) { put(out, *fields[i]); });
      done();
   }
}

} // namespace

void judge::dump(const std::string &file, const std::string &name, const std::string &target)
{
   std::ofstream lines(target);
   Json json;
   visit(file, name, json, [&] {
      lines << json.out << '\n';
      json.out.clear();
   });
   lines.close();
   if (!lines)
      throw std::runtime_error("could not write " + target);
}

std::string judge::sums(const std::string &file, const std::string &name)
{
   Sums sums;
   visit(file, name, sums, [] {});
   const std::vector<std::pair<std::string, std::array<double, 3>>> found(sums.found.begin(), sums.found.end());
   Json json;
   json.record(
      found.size(), [&](std::size_t i) { return found[i].first; },
      [&](std::size_t i) { json.list(3, [&](std::size_t k) { json.real(found[i].second[k]); }); });
   return json.out;
}
