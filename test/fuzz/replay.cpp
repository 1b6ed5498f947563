// SPDX-License-Identifier: Apache-2.0
// Usage: TARGET [--inputs N] [--seed S] FILE-OR-FOLDER...
// Runs a fuzz target without libFuzzer: over all files, then over N inputs made of them by a few random changes, the
// same ones for each seed. What goes wrong leaves the input in a file and says the command that runs it again.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "target.hpp"

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t longest_input = 1 << 16;
constexpr unsigned longest_seconds = 20;

// Read by signal handlers.
const Bytes* current = nullptr;
char crash_file[256];
char message[600];

void keep_input() {
  const int fd = open(crash_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (current == nullptr || fd < 0) return;
  [[maybe_unused]] ssize_t written = write(fd, current->data(), current->size());
  written = write(STDERR_FILENO, message, std::strlen(message));
  close(fd);
}

void on_signal(int number) {
  keep_input();
  signal(number, SIG_DFL);
  raise(number);
}

void prepare(const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);
  std::snprintf(crash_file, sizeof crash_file, "fuzz-crash-%s", name.c_str());
  std::snprintf(message, sizeof message, "the input is in %s; again: %s %s\n", crash_file, program.c_str(), crash_file);
  for (const int number : {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGILL, SIGSEGV}) signal(number, on_signal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(keep_input);
}

void run(const Bytes& input) {
  current = &input;
  alarm(longest_seconds);
  LLVMFuzzerTestOneInput(input.data(), input.size());
  alarm(0);
  current = nullptr;
}

Bytes read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Bytes> read_all(const std::vector<std::string>& arguments) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& argument : arguments) {
    if (!std::filesystem::is_directory(argument)) {
      paths.emplace_back(argument);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argument)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> inputs;
  for (const auto& path : paths) inputs.push_back(read(path));
  return inputs;
}

class Mutator {
 public:
  Mutator(const std::vector<Bytes>& seeds, uint64_t seed) : seeds_(seeds), random_(seed) {}

  Bytes next() {
    Bytes input = any_seed();
    for (size_t changes = 1 + below(6); changes > 0; --changes) change(input);
    if (input.size() > longest_input) input.resize(longest_input);
    return input;
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const Bytes& any_seed() { return seeds_[below(seeds_.size())]; }
  static Bytes::iterator at(Bytes& input, size_t place) { return input.begin() + static_cast<ptrdiff_t>(place); }

  void change(Bytes& input) {
    const size_t place = below(input.size() + 1);
    const size_t length = below(std::min<size_t>(input.size() - place, 64) + 1);
    switch (below(8)) {
      case 0:
        if (place < input.size()) input[place] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:
        if (place < input.size()) input[place] = static_cast<uint8_t>(random_());
        break;
      case 2:
        put_number(input, place);
        break;
      case 3:
        input.erase(at(input, place), at(input, place + length));
        break;
      case 4: {
        const Bytes copy(at(input, place), at(input, place + length));
        input.insert(at(input, below(input.size() + 1)), copy.begin(), copy.end());
        break;
      }
      case 5:
        input.resize(place);
        break;
      case 6:
        put_digits(input, place);
        break;
      default: {
        const Bytes& other = any_seed();
        const size_t from = below(other.size() + 1);
        const size_t bytes = below(std::min<size_t>(other.size() - from, 256) + 1);
        input.insert(at(input, place), other.begin() + static_cast<ptrdiff_t>(from),
                     other.begin() + static_cast<ptrdiff_t>(from + bytes));
      }
    }
  }

  // A number at the edge of what a length or a count can be.
  void put_number(Bytes& input, size_t place) {
    constexpr uint64_t numbers[] = {0,      1,          0x7f,       0x80,       0xff,        0x7fff,
                                    0xffff, 0x7fffffff, 0x80000000, 0xffffffff, ~uint64_t{0}};
    const uint64_t number = numbers[below(std::size(numbers))];
    const size_t width = std::min<size_t>(size_t{1} << below(4), input.size() - place);
    if (width == 0) return;
    std::memcpy(input.data() + place, &number, width);
  }
  void put_digits(Bytes& input, size_t place) {
    constexpr const char* numbers[] = {
        "-1", "0", "1", "2147483647", "2147483648", "-2147483649", "18446744073709551616", "1e308"};
    const std::string number = numbers[below(std::size(numbers))];
    size_t end = place;
    while (end < input.size() && std::isdigit(input[end]) != 0) ++end;
    input.erase(at(input, place), at(input, end));
    input.insert(at(input, place), number.begin(), number.end());
  }

  const std::vector<Bytes>& seeds_;
  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  prepare(argv[0]);
  size_t count = 0;
  uint64_t seed = 1;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--inputs" && i + 1 < argc) {
      count = std::stoul(argv[++i]);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = std::stoul(argv[++i]);
    } else {
      files.push_back(argument);
    }
  }
  const std::vector<Bytes> seeds = read_all(files);
  if (seeds.empty()) {
    std::fprintf(stderr, "usage: %s [--inputs N] [--seed S] FILE-OR-FOLDER...\n", argv[0]);
    return 1;
  }
  for (const Bytes& input : seeds) run(input);
  Mutator mutator(seeds, seed);
  for (size_t i = 0; i < count; ++i) run(mutator.next());
  std::printf("%zu files and %zu inputs made of them, seed %llu\n", seeds.size(), count,
              static_cast<unsigned long long>(seed));
  return 0;
}
