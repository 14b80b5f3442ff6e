// Containers, algorithms, exceptions, virtual functions, smart pointers: computation, whatever it imports.
#include <algorithm>
#include <any>
#include <bitset>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <queue>
#include <set>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <valarray>
#include <variant>
#include <vector>

struct Base {
  virtual ~Base() = default;
  virtual int size() const = 0;
};
struct Small : virtual Base {
  int size() const override { return 1; }
};

extern "C" int containers(const Base* base, int n) {
  std::vector<int> values(n);
  std::iota(values.begin(), values.end(), 0);
  std::stable_sort(values.begin(), values.end(), std::greater<>());
  std::map<int, std::string> tree{{n, "a"}};
  std::set<float> ordered{1.f, 2.f};
  std::unordered_map<int, std::vector<float>> table;
  table[n].push_back(1.f);
  table.rehash(100);
  std::unordered_set<std::string> words{"q"};
  std::list<int> chain{3, 1, 2};
  chain.sort();
  std::deque<int> ends;
  ends.push_front(n);
  std::priority_queue<int> heap;
  heap.push(n);
  std::function<int(int)> more = [&](int x) { return x + n; };
  auto shared = std::make_shared<int>(n);
  std::weak_ptr<int> weak = shared;
  std::variant<int, std::string> either = "x";
  std::any anything = 1;
  std::bitset<64> bits(n);
  std::valarray<double> numbers(n);
  try {
    if (n == 1) throw std::runtime_error("one");
    if (n == 2) throw 5;
    if (n == 3) throw "three";
    values.at(n) = std::get<int>(either) + static_cast<int>(std::any_cast<float>(anything));
  } catch (const std::exception& error) {
    return error.what()[0];
  } catch (int number) {
    return number;
  } catch (const char* text) {
    return text[0];
  }
  if (const auto* small = dynamic_cast<const Small*>(base)) return small->size();
  return more(*weak.lock()) + static_cast<int>(bits.count() + std::hash<std::string>()("a") + tree.size()) +
         static_cast<int>(numbers.sum() + ordered.size() + words.size() + chain.size() + ends.size() + heap.size()) +
         (typeid(*base) == typeid(Small));
}
