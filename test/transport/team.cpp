// SPDX-License-Identifier: Apache-2.0
#include "transport/team.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

constexpr int64_t patience_ms = 90000;
const std::string not_here = "not here: ";  // heads the outcome of a member whose transport this machine lacks
const std::string others_fault = "another member gave up";

std::string text_of(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// Of the list in UCCLEP_TEST_NICS, in turns; empty without it: the transport's own choice.
std::string nic_of(int rank) {
  std::istringstream list(text_of("UCCLEP_TEST_NICS", ""));
  std::vector<std::string> nics;
  for (std::string nic; std::getline(list, nic, ',');) nics.push_back(nic);
  return nics.empty() ? "" : nics[static_cast<size_t>(rank) % nics.size()];
}

struct BoardMemory {
  BoardMemory() {
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    board = new (memory) Board;
  }
  ~BoardMemory() { munmap(board, sizeof(Board)); }
  Board* board;
};

void run_member(int rank, const TeamOptions& options, Board& board, const std::function<void(Member&)>& body) {
  std::string outcome = "ok";
  bool made = false;
  try {
    if (stage != nullptr) stage->enter(rank);
    Member member(rank, options, board);
    made = true;
    body(member);
  } catch (const Error& error) {
    outcome = (!made && error.code() == ucclEpNotSupported ? not_here : "") + std::string(error.what());
    board.given_up = true;
  } catch (const std::exception& error) {
    outcome = error.what();
    board.given_up = true;
  }
  std::strncpy(board.page[rank].outcome, outcome.c_str(), sizeof(board.page[rank].outcome) - 1);
}

void run_threads(const TeamOptions& options, Board& board, const std::function<void(Member&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.members; ++rank) {
    threads.emplace_back([&, rank] { run_member(rank, options, board, body); });
  }
  for (std::thread& thread : threads) thread.join();
}

// What libfabric's shm cannot take away when its process is killed.
void remove_files_of(pid_t process) {
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    const std::string name = file.path().filename();
    if (name.rfind(std::to_string(process) + ":", 0) == 0) std::filesystem::remove(file.path(), ignored);
  }
}

void run_processes(const TeamOptions& options, Board& board, const std::function<void(Member&)>& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.members; ++rank) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      run_member(rank, options, board, body);
      _exit(0);
    }
    children.push_back(child);
  }
  for (int rank = 0; rank < options.members; ++rank) {
    int status = 0;
    waitpid(children[static_cast<size_t>(rank)], &status, 0);
    if (options.killed.count(rank) == 1) {
      if (!WIFSIGNALED(status)) FAIL_CHECK("member " << rank << " was to be killed");
      std::strcpy(board.page[rank].outcome, "ok");
      remove_files_of(children[static_cast<size_t>(rank)]);
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      FAIL_CHECK("member " << rank << " ended with status " << status);
    }
  }
}

void judge(const TeamOptions& options, const Board& board) {
  std::vector<std::string> outcomes;
  for (int rank = 0; rank < options.members; ++rank) outcomes.emplace_back(board.page[rank].outcome);
  const auto is_not_here = [](const std::string& outcome) { return outcome.rfind(not_here, 0) == 0; };
  // What one member lacks and another has is a fault.
  if (std::all_of(outcomes.begin(), outcomes.end(), is_not_here)) return skip_case(outcomes.front());
  // Who failed by itself comes first: reports name the first failure alone.
  for (const bool by_others : {false, true}) {
    for (size_t rank = 0; rank < outcomes.size(); ++rank) {
      if ((outcomes[rank] == others_fault) != by_others) continue;
      INFO("member " << rank << ", " << options.transport);
      CHECK(outcomes[rank] == "ok");
    }
  }
}

}  // namespace

std::string transport_under_test() {
  return text_of("UCCLEP_TEST_TRANSPORT", "loopback");
}

bool members_are_processes() {
  return text_of("UCCLEP_TEST_PROCESSES", "0") == "1";
}

void check(bool good, const std::string& what) {
  if (!good) throw Failure(what);
}

Member::Member(int rank, const TeamOptions& options, Board& board)
    : rank_(rank),
      options_(options),
      board_(board),
      transport_(transport::make_transport(options.transport)),
      window_(SealedMemory::create(options.window_bytes)),
      remote_(static_cast<size_t>(options.members)) {
  const std::string nic = nic_of(rank);
  const transport::Config config{
      nic.c_str(), static_cast<uint32_t>(options.members), options.sends, options.receives, options.timeout_ms, 0};
  endpoint_ = transport_->open(config);
  const transport::Memory memory{.kind = UCCLEP_MEMORY_HOST,
                                 .device = 0,
                                 .data = window_.data(),
                                 .bytes = window_.bytes(),
                                 .fd = window_.fd(),
                                 .fd_offset = 0};
  transport::Key key;
  region_ = endpoint_->register_region(memory, &key);
  addresses_ = exchange(endpoint_->address());
  for (const auto& bytes : exchange(std::as_bytes(std::span(&key, 1)))) {
    keys_.emplace_back();
    std::memcpy(&keys_.back(), bytes.data(), sizeof(key));
  }
  for (int peer = 0; peer < options.members; ++peer) {
    if (options.alone.count(rank) == 0 && options.alone.count(peer) == 0) connect(peer);
  }
  barrier();
}

Member::~Member() = default;

void Member::connect(int peer) {
  const auto number = static_cast<uint32_t>(peer);
  endpoint_->connect(number, static_cast<uint32_t>(rank_), address(peer));
  remote_[number] = endpoint_->import_region(number, key(peer));
}

void Member::check_on_others() const {
  if (board_.given_up) throw Failure(others_fault);
}

void Member::until(const std::function<bool()>& reached, const std::string& what) {
  const Deadline deadline = Deadline::after_ms(patience_ms);
  for (unsigned turn = 0; !reached(); ++turn) {
    poll();
    if (turn % 16 == 15) std::this_thread::yield();
    check_on_others();
    if (deadline.expired()) throw Failure(fmt::format("member {} waited for ever: {}", rank_, what));
  }
}

void Member::barrier() {
  const uint32_t everyone = ++barriers_ * static_cast<uint32_t>(options_.members);
  ++board_.arrived;
  until([&] { return board_.arrived.load() >= everyone; }, "a barrier");
}

std::vector<std::vector<std::byte>> Member::exchange(std::span<const std::byte> mine) {
  check(mine.size() <= Board::page_bytes, "a long message for the board");
  Board::Page& page = board_.page[rank_];
  page.bytes = mine.size();
  std::copy(mine.begin(), mine.end(), page.data);
  barrier();
  std::vector<std::vector<std::byte>> all;
  for (int peer = 0; peer < options_.members; ++peer) {
    const Board::Page& theirs = board_.page[peer];
    all.emplace_back(theirs.data, theirs.data + theirs.bytes);
  }
  barrier();
  return all;
}

void Member::wait_for_word(int word, uint32_t at_least) {
  until([&] { return board_.word[word].load() >= at_least; }, fmt::format("word {} of the board", word));
}

void Member::sleep_until_word(int word) {
  const Deadline deadline = Deadline::after_ms(patience_ms);
  while (board_.word[word].load() == 0) {
    check_on_others();
    check(!deadline.expired(), "nobody wrote the word");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Member::poll() {
  if (!endpoint_) return;
  std::array<transport::Completion, 32> completions;
  const uint32_t count = endpoint_->poll(std::span(completions).first(poll_room));
  for (uint32_t i = 0; i < count; ++i) take(completions[i]);
}

void Member::take(const transport::Completion& completion) {
  Event event{completion, completion.words != nullptr ? completion.words : ""};
  if (completion.kind == UCCLEP_COMPLETION_ARRIVAL) {
    if (!arrived_.insert(completion.imm).second) {
      ++repeated;
    } else if (on_arrival) {
      on_arrival(event);
    }
    return;
  }
  if (completion.operation != UCCLEP_OPERATION_NONE) {
    check(completion.cookie < completed_.size(), "a completion with a cookie that nobody gave");
    check(completed_[completion.cookie]++ == 0, "two completions of one operation");
    ++ended_;
  }
  if (completion.kind == UCCLEP_COMPLETION_DONE) {
    ++dones;
  } else {
    check(completion.code != ucclEpSuccess && !event.message.empty(), "an ERROR without a code or an error message");
    errors.push_back(std::move(event));
  }
}

void Member::send(int peer, const transport::Operation& operation) {
  until([&] { return send_chain(peer, std::span(&operation, 1)) == 1; }, "room to post");
}

uint32_t Member::send_chain(int peer, std::span<const transport::Operation> operations) {
  std::vector<transport::Operation> chain(operations.begin(), operations.end());
  for (size_t i = 0; i < chain.size(); ++i) chain[i].cookie = completed_.size() + i;
  const uint32_t taken = endpoint_->post(static_cast<uint32_t>(peer), chain);
  completed_.resize(completed_.size() + taken);
  sent_ += taken;
  return taken;
}

transport::Operation Member::write(int peer, uint64_t local, uint64_t remote, uint64_t bytes) const {
  return {.kind = UCCLEP_OPERATION_WRITE,
          .flags = 0,
          .local_region = region_,
          .remote_region = remote_[static_cast<size_t>(peer)],
          .local_offset = local,
          .remote_offset = remote,
          .bytes = bytes,
          .cookie = 0,
          .imm = 0};
}

transport::Operation Member::with_imm(transport::Operation operation, uint32_t imm) {
  operation.flags |= UCCLEP_OPERATION_IMM;
  operation.imm = imm;
  return operation;
}

void Member::finish() {
  until([&] { return unfinished() == 0 || !errors.empty(); }, fmt::format("{} operations to end", unfinished()));
  if (!errors.empty()) throw Failure("an operation failed: " + errors.front().message);
}

Event Member::until_broken(int peer, const std::string& what) {
  const auto lost = [&] {
    return std::find_if(errors.begin(), errors.end(), [&](const Event& event) {
      return event.operation == UCCLEP_OPERATION_NONE && event.peer == static_cast<uint32_t>(peer);
    });
  };
  until([&] { return lost() != errors.end() && unfinished() == 0; }, what);
  return *lost();
}

Event Member::send_until_broken(int peer, const transport::Operation& operation) {
  until(
      [&] {
        send_chain(peer, std::span(&operation, 1));
        return !errors.empty();
      },
      "an ERROR");
  return until_broken(peer, "the rest of the operations");
}

std::string Member::refused(ucclEpResult_t code, const std::function<void()>& setup) {
  try {
    setup();
  } catch (const Error& error) {
    check(error.code() == code, fmt::format("code {} instead of {}: {}", static_cast<int>(error.code()),
                                            static_cast<int>(code), error.what()));
    return error.what();
  }
  throw Failure("what is wrong was not refused");
}

void run_team(const TeamOptions& options, const std::function<void(Member&)>& body) {
  const size_t star = options.transport.find('*');
  if (star != std::string::npos) {
    for (unsigned seed = 1; seed <= seeds(); ++seed) {
      TeamOptions seeded = options;
      seeded.transport.replace(star, 1, std::to_string(seed));
      run_team(seeded, body);
    }
    return;
  }
  if (stage != nullptr) stage->prepare();
  BoardMemory memory;
  Board& board = *memory.board;
  (members_are_processes() ? run_processes : run_threads)(options, board, body);
  judge(options, board);
}

void run_team(const std::function<void(Member&)>& body) {
  run_team(TeamOptions{}, body);
}

}  // namespace ucclep::test
