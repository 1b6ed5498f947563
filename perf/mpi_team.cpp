// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api.hpp"
#include "mpi_plugin.hpp"
#include "team.hpp"

namespace ucclep::perf {
namespace {

std::string beside_this_program(const char* file) {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, length > 0 ? length : 0);
  return program.substr(0, program.rfind('/') + 1) + file;
}

// Some launchers show each process one device only.
bool launcher_chose_gpu() {
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}) {
    const char* devices = std::getenv(name);
    if (devices != nullptr && *devices != 0 && std::strchr(devices, ',') == nullptr) return true;
  }
  return false;
}

class MpiTeam : public Team {
 public:
  MpiTeam() {
    const std::string plugin = beside_this_program("ucclep_perf_mpi.so");
    // Global, as Open MPI's own plugins look for its symbols.
    void* library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_GLOBAL);
    const auto open =
        library ? reinterpret_cast<decltype(&ucclep_perf_mpi_open)>(dlsym(library, "ucclep_perf_mpi_open")) : nullptr;
    if (!open) {
      throw PerfError(
          fmt::format("an MPI launcher started this program, but {} cannot be used ({}): build it where the build "
                      "finds MPI, or use --procs to start processes on this machine without MPI",
                      plugin, dlerror()));
    }
    if (int error = open(&calls_)) throw PerfError(fmt::format("cannot initialise MPI: error {}", error));
  }
  ~MpiTeam() override { calls_.finalize(); }

  int rank() const override { return calls_.rank; }
  int size() const override { return calls_.size; }
  int gpu() const override { return launcher_chose_gpu() ? 0 : calls_.local_rank; }
  void barrier() override { expect_success(calls_.barrier(), "MPI_Barrier"); }
  void allgather(void* buffer, size_t bytes_per_rank) override {
    expect_success(calls_.allgather(buffer, bytes_per_rank), "MPI_Allgather");
  }
  void fail(const std::string& message) override {
    std::fprintf(stderr, "%s\n", message.c_str());
    calls_.abort();
  }
  ucclEpResult_t init_communicator(ucclEpComm_t* comm, const ucclEpCommConfig_t& config) override {
    ucclEpBootstrap_t bootstrap = UCCLEP_BOOTSTRAP_INIT;
    bootstrap.ctx = this;
    bootstrap.allgather = [](void* self, void* buffer, size_t bytes_per_rank) {
      return static_cast<MpiTeam*>(self)->calls_.allgather(buffer, bytes_per_rank);
    };
    return ucclEpCommInitBootstrap(comm, size(), rank(), &bootstrap, &config);
  }

 private:
  static void expect_success(int error, const char* call) {
    if (error != 0) throw PerfError(fmt::format("{} failed: error {}", call, error));
  }

  MpiCalls calls_{};
};

}  // namespace

std::unique_ptr<Team> open_mpi_team() {
  return std::make_unique<MpiTeam>();
}

}  // namespace ucclep::perf
