// SPDX-License-Identifier: Apache-2.0
// The ranks of one run as the tool itself connects them, apart from the library under test: a barrier, a gather, and
// the news that one of them failed. Every wait ends when a member fails.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "ucclep/ucclep.h"

namespace ucclep::perf {

// Thrown by a wait when another rank has failed; that rank's message is the one to print.
class TeamFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One rank's view.
class Team {
 public:
  virtual ~Team() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int gpu() const = 0;  // the index of the GPU that is this rank's
  virtual void barrier() = 0;
  // In place: rank r's part is at buffer + r * bytes_per_rank.
  virtual void allgather(void* buffer, size_t bytes_per_rank) = 0;
  // Keeps the first message, and wakes all that wait.
  virtual void fail(const std::string& message) = 0;
  virtual ucclEpResult_t init_communicator(ucclEpComm_t* comm, const ucclEpCommConfig_t& config) = 0;

  template <class T>
  std::vector<T> gather(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(size());
    all[rank()] = mine;
    allgather(all.data(), sizeof(T));
    return all;
  }
};

// Memory shared by the ranks of this machine, threads or processes: an anonymous file, so that nothing can be left
// behind. Its descriptor is inherited by the processes that --procs starts; the library's unique ids travel in it.
class SharedMemoryTeam {
 public:
  // Creates the memory.
  explicit SharedMemoryTeam(int ranks);
  // Joins what a parent created.
  explicit SharedMemoryTeam(int ranks, int inherited_fd);
  ~SharedMemoryTeam();
  SharedMemoryTeam(const SharedMemoryTeam&) = delete;
  SharedMemoryTeam& operator=(const SharedMemoryTeam&) = delete;

  int fd() const { return fd_; }
  std::unique_ptr<Team> member(int rank);
  void fail(const std::string& message);
  std::string failure() const;  // empty: none

 private:
  friend class SharedMemoryMember;
  struct Header;
  void map();
  void barrier();
  void check_failed() const;
  std::byte* slot(int rank) const;

  int ranks_;
  int fd_;
  size_t bytes_ = 0;
  Header* header_ = nullptr;
};

// The job that an MPI launcher started, through the plugin ucclep_perf_mpi.so beside this program.
std::unique_ptr<Team> open_mpi_team();

}  // namespace ucclep::perf
