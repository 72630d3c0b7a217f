// The classes of the files that root_write.py makes; declared to ROOT's interpreter, which then reads and writes them.
#pragma once

#include <Rtypes.h>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace judge {

enum class Colour : std::uint8_t { kRed = 1, kGreen = 2, kBlue = 200 };
enum Plain { kMinus = -4, kPlus = 7 };

struct Point {
   float x = 0;
   double y = 0;
   std::vector<std::int32_t> hits;
};

struct Track : public Point {
   std::int16_t charge = 0;
   std::array<float, 3> momentum{};
   Colour colour = Colour::kRed;
   std::vector<Point> points;
   std::string name;
};

struct Empty {};

struct Tagged {
   std::int32_t tag = 0;
   float x = 0;
};

// Several base classes, one of them without members, and a member name that each class hides.
struct Seed : public Point, public Tagged, public Empty {
   double x = 0;
   Empty none;
};

// Written as an object in ROOT's own serialisation.
struct Streamed {
   std::int32_t number = 0;
   float x = 0;
   std::vector<double> values;
   ClassDefNV(Streamed, 3)
};

} // namespace judge
