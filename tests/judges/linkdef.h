// The types for which ROOT needs a compiled dictionary: the classes of this project, and containers other than vectors.
#ifdef __CLING__
#pragma link off all globals;
#pragma link off all classes;
#pragma link off all functions;
#pragma link C++ enum judge::Colour+;
#pragma link C++ enum judge::Plain+;
#pragma link C++ class judge::Point+;
#pragma link C++ class judge::Track+;
#pragma link C++ class judge::Empty+;
#pragma link C++ class judge::Tagged+;
#pragma link C++ class judge::Seed+;
#pragma link C++ class judge::Streamed+;
#pragma link C++ class std::set<std::int32_t>+;
#pragma link C++ class std::set<std::string>+;
#pragma link C++ class std::multiset<std::int16_t>+;
#pragma link C++ class std::unordered_set<std::int64_t>+;
#pragma link C++ class std::map<std::string, float>+;
#pragma link C++ class std::map<std::int32_t, std::vector<std::string>>+;
#pragma link C++ class std::multimap<std::int32_t, std::int64_t>+;
#pragma link C++ class std::unordered_map<std::int32_t, double>+;
#endif
