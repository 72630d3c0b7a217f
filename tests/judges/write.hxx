// Writes the RNTuples that need more than fields and values; root_write.py has the same formulas for their values.
#pragma once

#include "values.hxx"

#include <ROOT/RField.hxx>
#include <ROOT/RNTupleModel.hxx>
#include <ROOT/RNTupleWriteOptions.hxx>
#include <ROOT/RNTupleWriter.hxx>
#include <TFile.h>

namespace judge {

using Model = ROOT::RNTupleModel;
using Writer = ROOT::RNTupleWriter;

inline std::vector<std::int32_t> counted(int from, int to)
{
   std::vector<std::int32_t> values;
   for (int i = from; i < to; ++i)
      values.push_back(i);
   return values;
}

inline void write_extended(const char *path)
{
   auto model = Model::Create();
   auto id = model->MakeField<std::int32_t>("id");
   auto writer = Writer::Recreate(std::move(model), "ntuple", path);
   std::shared_ptr<float> late_float;
   std::shared_ptr<std::vector<std::int32_t>> late_list;
   std::shared_ptr<std::string> late_text;
   std::shared_ptr<Point> late_point;
   std::shared_ptr<std::array<std::int64_t, 2>> later_array;
   std::shared_ptr<std::optional<std::int32_t>> later_optional;
   for (int i = 0; i < 30; ++i) {
      if (i == 4)
         writer->CommitCluster();
      if (i == 10) {
         auto updater = writer->CreateModelUpdater();
         updater->BeginUpdate();
         late_float = updater->MakeField<float>("late_float");
         late_list = updater->MakeField<std::vector<std::int32_t>>("late_list");
         late_text = updater->MakeField<std::string>("late_text");
         late_point = updater->MakeField<Point>("late_point");
         updater->CommitUpdate();
      }
      if (i == 20) {
         writer->CommitCluster(true);
         auto updater = writer->CreateModelUpdater();
         updater->BeginUpdate();
         later_array = updater->MakeField<std::array<std::int64_t, 2>>("later_array");
         later_optional = updater->MakeField<std::optional<std::int32_t>>("later_optional");
         updater->AddProjectedField(std::make_unique<ROOT::RField<std::int32_t>>("later_id"),
                                    [](const std::string &) { return "id"; });
         updater->CommitUpdate();
      }
      *id = i;
      if (i >= 10) {
         *late_float = i / 2.f;
         *late_list = {i, i + 1};
         *late_text = "late " + std::to_string(i);
         *late_point = Point{float(i), 2. * i, {i}};
      }
      if (i >= 20) {
         *later_array = {i, -i};
         *later_optional = i;
      }
      writer->Fill();
   }
}

inline void write_projected(const char *path)
{
   auto model = Model::Create();
   auto points = model->MakeField<std::vector<Point>>("points");
   auto id = model->MakeField<std::int32_t>("id");
   auto project = [&](std::unique_ptr<ROOT::RFieldBase> field, std::map<std::string, std::string> sources) {
      model->AddProjectedField(std::move(field), [=](const std::string &name) { return sources.at(name); })
         .ThrowOnError();
   };
   project(std::make_unique<ROOT::RField<std::int32_t>>("same_id"), {{"same_id", "id"}});
   project(std::make_unique<ROOT::RField<std::vector<float>>>("points_x"),
           {{"points_x", "points"}, {"points_x._0", "points._0.x"}});
   project(std::make_unique<ROOT::RField<ROOT::RNTupleCardinality<std::uint32_t>>>("n_points"), {{"n_points", "points"}});
   project(std::make_unique<ROOT::RField<ROOT::RNTupleCardinality<std::uint64_t>>>("n_points_64"),
           {{"n_points_64", "points"}});
   auto writer = Writer::Recreate(std::move(model), "ntuple", path);
   for (int i = 0; i < 25; ++i) {
      points->clear();
      for (int k = 0; k < i % 4; ++k)
         points->push_back(Point{k + 0.5f, k * 3., counted(0, k)});
      *id = i;
      writer->Fill();
      if (i == 11)
         writer->CommitCluster();
   }
}

// Untyped records have the same layout in memory as these classes.
struct UntypedInner {
   std::string d;
};
struct UntypedRecord {
   std::int32_t a;
   double b;
   UntypedInner c;
};
struct UntypedItem {
   std::int64_t e;
   float f;
};

inline std::unique_ptr<ROOT::RFieldBase> field_of(const char *name, const char *type)
{
   return ROOT::RFieldBase::Create(name, type).Unwrap();
}

template <typename... Fields>
std::unique_ptr<ROOT::RFieldBase> record_of(const char *name, Fields... fields)
{
   std::vector<std::unique_ptr<ROOT::RFieldBase>> members;
   (members.push_back(std::move(fields)), ...);
   return std::make_unique<ROOT::RRecordField>(name, std::move(members));
}

inline void write_untyped(const char *path)
{
   auto model = Model::Create();
   model->AddField(record_of("record", field_of("a", "std::int32_t"), field_of("b", "double"),
                             record_of("c", field_of("d", "std::string"))));
   model->AddField(ROOT::RVectorField::CreateUntyped(
      "collection", record_of("_0", field_of("e", "std::int64_t"), field_of("f", "float"))));
   model->AddField(ROOT::RVectorField::CreateUntyped(
      "lists", ROOT::RVectorField::CreateUntyped("_0", field_of("_0", "std::int32_t"))));
   auto writer = Writer::Recreate(std::move(model), "ntuple", path);
   auto &entry = const_cast<ROOT::REntry &>(writer->GetModel().GetDefaultEntry());
   auto &record = *static_cast<UntypedRecord *>(entry.GetPtr<void>("record").get());
   auto &collection = *static_cast<std::vector<UntypedItem> *>(entry.GetPtr<void>("collection").get());
   auto &lists = *static_cast<std::vector<std::vector<std::int32_t>> *>(entry.GetPtr<void>("lists").get());
   for (int i = 0; i < 20; ++i) {
      record.a = i;
      record.b = i / 4.;
      record.c.d = "deep " + std::to_string(i);
      collection.clear();
      for (int k = 0; k < i % 5; ++k)
         collection.push_back({i * 10 + k, k / 8.f});
      lists.clear();
      for (int k = 0; k < i % 4; ++k)
         lists.emplace_back(k, k);
      writer->Fill();
      if (i == 8)
         writer->CommitCluster();
   }
}

inline void write_streamed(const char *path)
{
   auto model = Model::Create();
   auto id = model->MakeField<std::int32_t>("id");
   model->AddField(std::make_unique<ROOT::RStreamerField>("point", "judge::Streamed"));
   auto writer = Writer::Recreate(std::move(model), "ntuple", path);
   auto &entry = const_cast<ROOT::REntry &>(writer->GetModel().GetDefaultEntry());
   auto &point = *static_cast<Streamed *>(entry.GetPtr<void>("point").get());
   for (int i = 0; i < 10; ++i) {
      *id = i;
      point.number = i;
      point.x = i / 2.f;
      point.values.clear();
      for (int k = 0; k < i % 3; ++k)
         point.values.push_back(k);
      writer->Fill();
      if (i == 6)
         writer->CommitCluster();
   }
}

inline void write_several(const char *path)
{
   auto file = std::unique_ptr<TFile>(TFile::Open(path, "RECREATE"));
   auto *folder = file->mkdir("folder");
   auto first_model = Model::Create(), second_model = Model::Create(), inner_model = Model::Create();
   auto id = first_model->MakeField<std::int32_t>("id");
   auto x = second_model->MakeField<double>("x");
   auto text = inner_model->MakeField<std::string>("text");
   auto first = Writer::Append(std::move(first_model), "first", *file);
   auto second = Writer::Append(std::move(second_model), "second", *file);
   auto inner = Writer::Append(std::move(inner_model), "inner", *folder);
   for (int i = 0; i < 12; ++i) {
      *id = i;
      *x = i / 2.;
      *text = std::to_string(i);
      first->Fill();
      second->Fill();
      inner->Fill();
      if (i % 5 == 4) {
         first->CommitCluster();
         inner->CommitCluster();
      }
   }
}

inline void write_large(const char *path)
{
   auto model = Model::Create();
   auto values = model->MakeField<std::vector<std::int32_t>>("values");
   auto id = model->MakeField<std::int32_t>("id");
   auto writer = Writer::Recreate(std::move(model), "ntuple", path);
   for (int i = 0; i < 8; ++i) {
      values->assign(i % 3 == 1 ? 100000 : 0, 0);
      for (std::size_t k = 0; k < values->size(); ++k)
         (*values)[k] = (i * 31 + k) % 1009;
      *id = i;
      writer->Fill();
   }
}

inline void write_described(const char *path)
{
   auto model = Model::Create();
   model->SetDescription("what it is: \"events\" in naïve form\nin two lines");
   auto momentum = model->MakeField<float>("p_T[GeV]", "transverse momentum");
   auto size = model->MakeField<std::int32_t>("größe", "");
   auto writer = Writer::Recreate(std::move(model), "ntuple_näme", path);
   for (int i = 0; i < 3; ++i) {
      *momentum = i;
      *size = i;
      writer->Fill();
   }
}

} // namespace judge
