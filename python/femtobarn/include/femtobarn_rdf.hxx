// A data source of ROOT's RDataFrame: the objects of a container of Femtobarn as of a commit.
//
//    auto frame = ROOT::RDF::FromFemtobarn("lhc.fed", "run7/events", "winter26");
//
// Columns have ROOT's names and types: "run", "MET.pt", "Muon.pt" (an RVec), "R_rdf_sizeof_Muon" (or "#Muon"); and those of
// NanoAOD: "MET_pt", "Muon_pt", "nMuon". Lists of lists of lists, optional values in lists, and variants are not shown.
//
// 1. A column is read when an action or a filter first uses it in a block of entries, and only then.
// 2. Entries are those of the container. Deleted objects, and those that do not meet the conditions, are passed over. Of a
//    block, the other columns are read from the first entry that meets the conditions to the last one.
// 3. Each slot has its own state and its own readers; they share the view alone.
//
// It is interpreted (`#include` in ROOT's prompt) or compiled, with ROOT 6.40 or newer, and needs the functions of
// femtobarn.h: `gSystem->Load` loads them.

#ifndef FEMTOBARN_RDF_HXX
#define FEMTOBARN_RDF_HXX

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <string_view>
#include <typeinfo>

#include <ROOT/RDF/RColumnReaderBase.hxx>
#include <ROOT/RDF/Utils.hxx>
#include <ROOT/RDataFrame.hxx>
#include <ROOT/RDataSource.hxx>
#include <ROOT/RVec.hxx>

#include "femtobarn.hpp"

namespace femtobarn {
namespace Internal {

/// Most entries that are read at once: then the values of a flat column stay in the processor's cache.
constexpr std::uint64_t kBlockEntries = 1 << 16;

/// About as many values of a column are read at once at most: they bound the memory. Fewer would have pages of 64 KiB cut
/// in two by more blocks, which takes time.
constexpr std::uint64_t kBlockValues = 1 << 20;

/// Entries of a slot's first block, before it is known how many values an entry has.
constexpr std::uint64_t kFirstEntries = 1 << 10;

/// A column of the data frame.
struct Column {
   std::string fPath;         ///< of the field that is read
   std::string fItem;         ///< C++ type of a value
   unsigned fLists = 0;       ///< lists around it
   bool fIsOptional = false;
   bool fIsSize = false;      ///< the number of items of the innermost list

   std::string TypeName() const
   {
      auto name = fIsSize ? "std::size_t" : fItem;
      for (unsigned list = fIsSize ? 1 : 0; list < fLists; ++list)
         name = "ROOT::VecOps::RVec<" + name + ">";
      return fIsOptional ? "std::optional<" + name + ">" : name;
   }
};

inline bool HasOwnType(const ArrowSchema &type, const char *own)
{
   // One pair: its number, and for the name and the value their lengths and bytes.
   constexpr std::size_t kName = sizeof("femtobarn.type") - 1;
   std::int32_t length = 0;
   if (!type.metadata)
      return false;
   std::memcpy(&length, type.metadata + 8 + kName, sizeof length);
   return std::string_view(type.metadata + 12 + kName, length) == own;
}

/// The C++ type of values, as ROOT names it; empty if they are not shown.
inline std::string ItemName(const ArrowSchema &type)
{
   switch (type.format[0]) {
   case 'b': return "bool";
   case 'c': return "std::int8_t";
   case 'C': return HasOwnType(type, "char") ? "char" : HasOwnType(type, "byte") ? "std::byte" : "std::uint8_t";
   case 's': return "std::int16_t";
   case 'S': return "std::uint16_t";
   case 'i': return "std::int32_t";
   case 'I': return "std::uint32_t";
   case 'l': return "std::int64_t";
   case 'L': return "std::uint64_t";
   case 'f': return "float";
   case 'g': return "double";
   case 'U': return "std::string";
   default: return "";
   }
}

/// The columns of a type, by name.
class ColumnList {
   std::map<std::string, Column, std::less<>> fColumns;
   std::vector<std::string> fNames;    ///< ROOT's
   std::vector<std::string> fAllNames; ///< and NanoAOD's

   void Add(std::string name, Column column, bool isAlias)
   {
      if (!fColumns.emplace(name, std::move(column)).second)
         return;
      fAllNames.push_back(name);
      if (!isAlias)
         fNames.push_back(std::move(name));
   }

   void AddField(const ArrowSchema &type, const std::string &path, Column outer, std::map<std::string, Column> &aliases)
   {
      const std::string format = type.format;
      const bool isList = format == "+L" || format.compare(0, 3, "+w:") == 0;
      if (type.flags & ARROW_FLAG_NULLABLE) {
         if (outer.fLists > 0 || isList)
            return;
         outer.fIsOptional = true;
      }
      if (isList) {
         if (outer.fIsOptional)
            return;
         if (outer.fLists == 0) {
            outer.fPath = format == "+L" ? path + ".#" : path;
            if (format == "+L" && path.find('.') == std::string::npos)
               aliases["n" + path] = {outer.fPath, "", 1, false, true};
         }
         ++outer.fLists;
         return AddField(*type.children[0], path, outer, aliases);
      }
      if (outer.fLists == 1) // Its size, with the path that was set where the list began.
         Add("R_rdf_sizeof_" + path, {outer.fPath, "", 1, false, true}, false);
      else if (outer.fLists == 2) // As in ROOT: the sizes of the inner lists.
         Add("R_rdf_sizeof_" + path, {path, "", 2, false, true}, false);
      if (format == "+s") {
         for (std::int64_t child = 0; child < type.n_children; ++child)
            AddField(*type.children[child], path + "." + type.children[child]->name, outer, aliases);
         return;
      }
      const auto item = ItemName(type);
      if (item.empty() || outer.fLists > 2)
         return;
      const Column column{path, item, outer.fLists, outer.fIsOptional, false};
      if (const auto dot = path.find('.'); dot != std::string::npos && path.find('.', dot + 1) == std::string::npos)
         aliases[path.substr(0, dot) + "_" + path.substr(dot + 1)] = column;
      Add(path, column, false);
   }

public:
   explicit ColumnList(const ArrowSchema &type)
   {
      std::map<std::string, Column> aliases;
      for (std::int64_t child = 0; child < type.n_children; ++child)
         AddField(*type.children[child], type.children[child]->name, {}, aliases);
      for (const auto &[name, column] : aliases)
         Add(name, column, true);
   }

   const std::vector<std::string> &Names() const { return fNames; }
   const std::vector<std::string> &AllNames() const { return fAllNames; }
   bool Has(std::string_view name) const { return fColumns.find(name) != fColumns.end(); }

   const Column &Get(std::string_view name) const
   {
      const auto found = fColumns.find(name);
      if (found == fColumns.end())
         throw Error(FB_NOT_FOUND, "the container has no column " + std::string(name));
      return found->second;
   }
};

/// The block of entries, within a range, that a slot reads.
struct Slot {
   std::shared_ptr<const View> fView;
   std::shared_ptr<const Conditions> fWhere;
   bool fIsPlain = true;           ///< no entry is passed over
   std::uint64_t fFirst = 0;       ///< of the block
   std::uint64_t fCount = 0;
   std::uint64_t fReadFirst = 0;   ///< of the block's entries that are read: from the first selected one
   std::uint64_t fReadEnd = 0;     ///< to the last one
   std::int64_t fRowsBefore = 0;   ///< objects of the block before those
   std::uint64_t fBlock = 0;       ///< changes with the block
   std::uint64_t fMostEntries = kFirstEntries; ///< of the next block
   std::uint64_t fEntryValues = 0; ///< most values that an entry of the block has in a column, on average
   std::vector<std::int64_t> fRows;

   /// Begins a block; `end` is the end of its range.
   void BeginBlock(std::uint64_t first, std::uint64_t end)
   {
      if (const auto values = std::exchange(fEntryValues, 0))
         fMostEntries = std::clamp<std::uint64_t>(kBlockValues / values, 1, kBlockEntries);
      fFirst = fReadFirst = first;
      fCount = std::min(end - first, fMostEntries);
      fReadEnd = fFirst + fCount;
      ++fBlock;
      if (fIsPlain)
         return;
      fRows = fView->Rows(fFirst, fReadEnd, *fWhere);
      const auto isSelected = [](std::int64_t row) { return row >= 0; };
      const auto least = std::find_if(fRows.begin(), fRows.end(), isSelected);
      if (least == fRows.end())
         return; // No column is read.
      const auto behind = std::find_if(fRows.rbegin(), fRows.rend(), isSelected).base();
      fReadFirst = fFirst + (least - fRows.begin());
      fReadEnd = fFirst + (behind - fRows.begin());
      fRowsBefore = *least;
   }

   bool HasEntry(std::uint64_t entry) const { return entry - fFirst < fCount; }
   bool IsSelected(std::uint64_t entry) const { return fIsPlain || fRows[entry - fFirst] >= 0; }
   std::size_t Row(std::uint64_t entry) const { return fIsPlain ? entry - fFirst : fRows[entry - fFirst] - fRowsBefore; }
};

/// Reads a column for a slot, block by block. Those derived from it turn a row into a value.
class Reader : public ROOT::Detail::RDF::RColumnReaderBase {
   std::shared_ptr<Slot> fSlot;
   Column fColumn;
   Schema fType;
   Array fArray;
   std::uint64_t fBlock = 0;
   std::vector<const std::uint8_t *> fPresent;

   /// The items of a list: where its offsets say, or so many each.
   struct Level {
      const std::int64_t *fOffsets;
      std::size_t fSize;
   };
   Level fLevels[2] = {};

protected:
   const void *fValues = nullptr;
   const std::int64_t *fTextOffsets = nullptr;
   std::vector<unsigned char> fTruths;

   struct Range {
      std::size_t fFirst, fEnd;
      std::size_t Size() const { return fEnd - fFirst; }
   };

   Range Items(std::size_t row, unsigned level = 0) const
   {
      const auto &lists = fLevels[level];
      if (lists.fOffsets)
         return {std::size_t(lists.fOffsets[row]), std::size_t(lists.fOffsets[row + 1])};
      return {row * lists.fSize, (row + 1) * lists.fSize};
   }

   bool IsPresent(std::size_t row) const
   {
      return std::all_of(fPresent.begin(), fPresent.end(), [row](auto *bits) { return bits[row / 8] >> row % 8 & 1; });
   }

   std::string_view Text(std::size_t at) const
   {
      const auto first = fTextOffsets[at];
      return {static_cast<const char *>(fValues) + first, std::size_t(fTextOffsets[at + 1] - first)};
   }

   std::size_t Row(Long64_t entry)
   {
      if (fBlock != fSlot->fBlock)
         Load();
      return fSlot->Row(entry);
   }

   void Load()
   {
      fArray = fSlot->fView->Read({fColumn.fPath}, fSlot->fReadFirst, fSlot->fReadEnd);
      fBlock = fSlot->fBlock;
      fPresent.clear();
      const auto *type = fType->children[0];
      const auto *array = fArray->children[0];
      for (unsigned level = 0;;) {
         if (type->flags & ARROW_FLAG_NULLABLE && array->n_buffers > 0 && array->buffers[0])
            fPresent.push_back(static_cast<const std::uint8_t *>(array->buffers[0]));
         const std::string format = type->format;
         if (format == "+L")
            fLevels[level++] = {static_cast<const std::int64_t *>(array->buffers[1]), 0};
         else if (format[0] == '+' && format[1] == 'w')
            fLevels[level++] = {nullptr, std::stoul(format.substr(3))};
         else if (format != "+s") {
            const auto rows = std::max<std::int64_t>(fArray->length, 1);
            fSlot->fEntryValues = std::max<std::uint64_t>(fSlot->fEntryValues, (array->length + rows - 1) / rows);
            return SetValues(format[0], *array);
         }
         if (type->n_children == 0 || (fColumn.fIsSize && level == fColumn.fLists))
            return;
         type = type->children[0];
         array = array->children[0];
      }
   }

private:
   void SetValues(char format, const ArrowArray &array)
   {
      if (format == 'b') { // Bits.
         const auto *bits = static_cast<const std::uint8_t *>(array.buffers[1]);
         fTruths.resize(array.length);
         for (std::int64_t at = 0; at < array.length; ++at)
            fTruths[at] = bits[at / 8] >> at % 8 & 1;
         fValues = fTruths.data();
      } else if (format == 'U') {
         fTextOffsets = static_cast<const std::int64_t *>(array.buffers[1]);
         fValues = array.buffers[2];
      } else {
         fValues = array.buffers[1];
      }
   }

public:
   Reader(std::shared_ptr<Slot> slot, const Column &column)
      : fSlot(std::move(slot)), fColumn(column), fType(fSlot->fView->Type({column.fPath}))
   {
   }
};

/// A number. It is copied, since Snapshot asks for the address of a column once.
template <typename T>
class NumberReader final : public Reader {
   T fValue{};

   void *GetImpl(Long64_t entry) final
   {
      const auto row = Row(entry);
      fValue = static_cast<const T *>(fValues)[row];
      return &fValue;
   }

public:
   using Reader::Reader;
};

/// A list of numbers, which are not copied.
template <typename T>
class ListReader final : public Reader {
   ROOT::RVec<T> fValue;

   void *GetImpl(Long64_t entry) final
   {
      const auto items = Items(Row(entry));
      auto *first = const_cast<T *>(static_cast<const T *>(fValues)) + items.fFirst;
      // One that shows others' memory owns nothing, so nothing is lost here.
      return ::new (static_cast<void *>(&fValue)) ROOT::RVec<T>(first, items.Size());
   }

public:
   using Reader::Reader;
};

/// A list of lists of numbers.
template <typename T>
class ListsReader final : public Reader {
   ROOT::RVec<ROOT::RVec<T>> fValue;

   void *GetImpl(Long64_t entry) final
   {
      const auto lists = Items(Row(entry));
      fValue.clear();
      fValue.reserve(lists.Size());
      for (auto list = lists.fFirst; list < lists.fEnd; ++list) {
         const auto items = Items(list, 1);
         fValue.emplace_back(const_cast<T *>(static_cast<const T *>(fValues)) + items.fFirst, items.Size());
      }
      return &fValue;
   }

public:
   using Reader::Reader;
};

/// A list of numbers as a std::vector, which has a copy.
template <typename T>
class VectorReader final : public Reader {
   std::vector<T> fValue;

   void *GetImpl(Long64_t entry) final
   {
      const auto items = Items(Row(entry));
      const auto *values = static_cast<const T *>(fValues);
      fValue.assign(values + items.fFirst, values + items.fEnd);
      return &fValue;
   }

public:
   using Reader::Reader;
};

/// A number that may be missing.
template <typename T>
class OptionalReader final : public Reader {
   std::optional<T> fValue;

   void *GetImpl(Long64_t entry) final
   {
      const auto row = Row(entry);
      fValue = IsPresent(row) ? std::optional<T>(static_cast<const T *>(fValues)[row]) : std::nullopt;
      return &fValue;
   }

public:
   using Reader::Reader;
};

/// The number of items.
class SizeReader final : public Reader {
   std::size_t fValue = 0;

   void *GetImpl(Long64_t entry) final
   {
      fValue = Items(Row(entry)).Size();
      return &fValue;
   }

public:
   using Reader::Reader;
};

/// The numbers of items of the lists in a list.
class SizesReader final : public Reader {
   ROOT::RVec<std::size_t> fValue;

   void *GetImpl(Long64_t entry) final
   {
      const auto lists = Items(Row(entry));
      fValue.clear();
      for (auto list = lists.fFirst; list < lists.fEnd; ++list)
         fValue.push_back(Items(list, 1).Size());
      return &fValue;
   }

public:
   using Reader::Reader;
};

/// A text, or one that may be missing, or a list of texts.
template <typename Value>
class TextReader final : public Reader {
   Value fValue;

   void *GetImpl(Long64_t entry) final
   {
      const auto row = Row(entry);
      if constexpr (std::is_same_v<Value, std::string>) {
         fValue = Text(row);
      } else if constexpr (std::is_same_v<Value, std::optional<std::string>>) {
         fValue = IsPresent(row) ? Value(Text(row)) : std::nullopt;
      } else {
         const auto items = Items(row);
         fValue.clear();
         for (auto item = items.fFirst; item < items.fEnd; ++item)
            fValue.emplace_back(Text(item));
      }
      return &fValue;
   }

public:
   using Reader::Reader;
};

/// The reader of a column as the type that is wanted; none if the column has other values.
class ReaderFactory {
   std::shared_ptr<Slot> fSlot;
   const Column &fColumn;
   const std::type_info &fWanted;

   template <typename Value, template <typename> class R, typename T>
   bool Make(std::unique_ptr<Reader> &made, unsigned lists, bool isOptional) const
   {
      if (fColumn.fLists != lists || fColumn.fIsOptional != isOptional || fWanted != typeid(Value))
         return false;
      made = std::make_unique<R<T>>(fSlot, fColumn);
      return true;
   }

   /// Types of the same size and sign are the same here: `long` and `long long`.
   template <typename T, typename... Same>
   bool MakeOf(std::unique_ptr<Reader> &made) const
   {
      return (Make<Same, NumberReader, Same>(made, 0, false) || ...) ||
             (Make<ROOT::RVec<Same>, ListReader, Same>(made, 1, false) || ...) ||
             Make<std::vector<T>, VectorReader, T>(made, 1, false) ||
             Make<std::optional<T>, OptionalReader, T>(made, 0, true) ||
             Make<ROOT::RVec<ROOT::RVec<T>>, ListsReader, T>(made, 2, false);
   }

   void MakeText(std::unique_ptr<Reader> &made) const
   {
      Make<std::string, TextReader, std::string>(made, 0, false) ||
         Make<std::optional<std::string>, TextReader, std::optional<std::string>>(made, 0, true) ||
         Make<ROOT::RVec<std::string>, TextReader, ROOT::RVec<std::string>>(made, 1, false) ||
         Make<std::vector<std::string>, TextReader, std::vector<std::string>>(made, 1, false);
   }

public:
   ReaderFactory(std::shared_ptr<Slot> slot, const Column &column, const std::type_info &wanted)
      : fSlot(std::move(slot)), fColumn(column), fWanted(wanted)
   {
   }

   std::unique_ptr<Reader> Made() const
   {
      std::unique_ptr<Reader> made;
      const auto &item = fColumn.fItem;
      if (fColumn.fIsSize) {
         if (fColumn.fLists == 1 && fWanted == typeid(std::size_t))
            made = std::make_unique<SizeReader>(fSlot, fColumn);
         else if (fColumn.fLists == 2 && fWanted == typeid(ROOT::RVec<std::size_t>))
            made = std::make_unique<SizesReader>(fSlot, fColumn);
      } else if (item == "std::string") {
         MakeText(made);
      } else if (item == "bool") {
         MakeOf<bool, bool>(made);
      } else if (item == "char") {
         MakeOf<char, char>(made);
      } else if (item == "std::byte") {
         MakeOf<std::byte, std::byte>(made);
      } else if (item == "std::int8_t") {
         MakeOf<std::int8_t, std::int8_t, char>(made);
      } else if (item == "std::uint8_t") {
         MakeOf<std::uint8_t, std::uint8_t>(made);
      } else if (item == "std::int16_t") {
         MakeOf<std::int16_t, std::int16_t>(made);
      } else if (item == "std::uint16_t") {
         MakeOf<std::uint16_t, std::uint16_t>(made);
      } else if (item == "std::int32_t") {
         MakeOf<std::int32_t, std::int32_t>(made);
      } else if (item == "std::uint32_t") {
         MakeOf<std::uint32_t, std::uint32_t>(made);
      } else if (item == "std::int64_t") {
         MakeOf<std::int64_t, long, long long>(made);
      } else if (item == "std::uint64_t") {
         MakeOf<std::uint64_t, unsigned long, unsigned long long>(made);
      } else if (item == "float") {
         MakeOf<float, float>(made);
      } else if (item == "double") {
         MakeOf<double, double>(made);
      }
      return made;
   }
};

} // namespace Internal

/// A container as a data source of RDataFrame.
class RFemtobarnDS final : public ROOT::RDF::RDataSource {
   using Ranges = std::vector<std::pair<ULong64_t, ULong64_t>>;

   std::shared_ptr<const View> fView;
   std::shared_ptr<const Conditions> fWhere;
   Internal::ColumnList fColumns;
   std::vector<std::uint64_t> fClusters;
   std::vector<std::shared_ptr<Internal::Slot>> fSlots;
   Ranges fRanges;
   bool fAreRangesTaken = false;

   /// Clusters, or several small ones at once: about 16 ranges for each slot.
   Ranges RangesOfLoop() const
   {
      Ranges ranges;
      const auto least = fView->Entries() / (16 * std::max(fNSlots, 1u));
      const auto whole = std::make_pair(ULong64_t(0), ULong64_t(fView->Entries()));
      const auto wanted = fGlobalEntryRange.value_or(whole);
      std::uint64_t first = wanted.first;
      const auto behind = std::min(wanted.second, whole.second);
      for (const auto cluster : fClusters) {
         const auto end = std::min<std::uint64_t>(cluster, behind);
         if (end > first && (end - first >= least || end == behind)) {
            ranges.emplace_back(first, end);
            first = end;
         }
      }
      return ranges;
   }

   /// The end of the range that an entry is in.
   std::uint64_t RangeEnd(ULong64_t entry) const
   {
      const auto behind = std::make_pair(entry, std::numeric_limits<ULong64_t>::max());
      const auto next = std::upper_bound(fRanges.begin(), fRanges.end(), behind);
      const auto end = next == fRanges.begin() ? 0 : std::prev(next)->second;
      return std::max<std::uint64_t>(end, entry + 1);
   }

public:
   RFemtobarnDS(View view, Conditions where)
      : fView(std::make_shared<const View>(std::move(view))),
        fWhere(std::make_shared<const Conditions>(std::move(where))),
        fColumns(*fView->Type().Get()),
        fClusters(fView->Clusters())
   {
   }

   void SetNSlots(unsigned int slots) final
   {
      RDataSource::SetNSlots(slots);
      const bool isPlain = fView->Entries() == fView->Objects() && fWhere->IsEmpty();
      while (fSlots.size() < slots)
         fSlots.push_back(std::make_shared<Internal::Slot>(Internal::Slot{fView, fWhere, isPlain}));
   }

   const std::vector<std::string> &GetColumnNames() const final { return fColumns.AllNames(); }
   bool HasColumn(std::string_view name) const final { return fColumns.Has(name); }
   std::string GetTypeName(std::string_view name) const final { return fColumns.Get(name).TypeName(); }
   std::string GetLabel() final { return "Femtobarn"; }

   void Initialize() final
   {
      fRanges = RangesOfLoop();
      fAreRangesTaken = false;
      for (auto &slot : fSlots)
         slot->fCount = 0;
   }

   Ranges GetEntryRanges() final
   {
      if (std::exchange(fAreRangesTaken, true))
         return {};
      return fRanges;
   }

   // Without threads InitSlot is called for the first range alone, so ranges are looked for here.
   bool SetEntry(unsigned int slot, ULong64_t entry) final
   {
      auto &state = *fSlots[slot];
      if (!state.HasEntry(entry))
         state.BeginBlock(entry, RangeEnd(entry));
      return state.IsSelected(entry);
   }

   std::unique_ptr<ROOT::Detail::RDF::RColumnReaderBase>
   GetColumnReaders(unsigned int slot, std::string_view name, const std::type_info &wanted) final
   {
      const auto &column = fColumns.Get(name);
      auto reader = Internal::ReaderFactory(fSlots.at(slot), column, wanted).Made();
      if (!reader)
         throw Error(FB_INVALID, "the column " + std::string(name) + " has the type " + column.TypeName() + ", not " +
                                    ROOT::Internal::RDF::TypeID2TypeName(wanted));
      return reader;
   }

protected:
   const std::vector<std::string> &GetTopLevelFieldNames() const final { return fColumns.Names(); }
   const std::vector<std::string> &GetColumnNamesNoDuplicates() const final { return fColumns.Names(); }
   std::string AsString() final { return "a container of Femtobarn"; }
   Record_t GetColumnReadersImpl(std::string_view, const std::type_info &) final { return {}; }
};

} // namespace femtobarn

namespace ROOT {
namespace RDF {

/// The objects of a view.
inline RDataFrame FromFemtobarn(femtobarn::View view, const femtobarn::Conditions &where = {})
{
   return RDataFrame(std::make_unique<femtobarn::RFemtobarnDS>(std::move(view), where));
}

/// The objects of a container, as of a tag, or of a commit by its number, or newest. `federation` is a folder or a URL.
inline RDataFrame FromFemtobarn(const std::string &federation, const std::string &container, const std::string &tag = "",
                                std::int64_t csn = -1, const femtobarn::Conditions &where = {})
{
   fb_options options{};
   options.threads = 1; // The data frame has its own.
   const auto opened = femtobarn::Federation::Open(federation, options);
   const auto snapshot = !tag.empty() ? opened.Tagged(tag) : csn >= 0 ? opened.At(csn) : opened.Newest();
   return FromFemtobarn(snapshot.Open(container), where);
}

} // namespace RDF
} // namespace ROOT

namespace femtobarn {
namespace Internal {

/// The objects of a view that Python opened and gives away by its address.
inline ROOT::RDataFrame FrameOf(std::uintptr_t address, const Conditions &where)
{
   return ROOT::RDF::FromFemtobarn(View(reinterpret_cast<fb_view *>(address)), where);
}

} // namespace Internal
} // namespace femtobarn

#endif
