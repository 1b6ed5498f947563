// SPDX-License-Identifier: Apache-2.0
#include "transport/loopback/regions.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "transport/loopback/nic_copy.hpp"

namespace ucclep::transport::loopback {
namespace {

struct LoopbackKey {
  Token segment;
  uint32_t region, generation;
};
static_assert(sizeof(LoopbackKey) <= sizeof(Key));

Fd duplicate(int fd) {
  Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy)
    fail(ucclEpSystemError, "loopback: cannot duplicate the descriptor {} of a region: {}", fd, errno_text(errno));
  return copy;
}

bool same_file(int a, int b) {
  struct stat of_a{}, of_b{};
  return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

}  // namespace

OwnRegions::~OwnRegions() {
  for (uint32_t region = 0; region < regions_.size(); ++region) {
    if (regions_[region].used) withdraw(region);
  }
}

uint32_t OwnRegions::add(const Memory& memory, Key* key) {
  if (memory.kind != UCCLEP_MEMORY_HOST)
    fail(ucclEpNotSupported, "loopback: cannot register memory that is not host memory");
  if (memory.data == nullptr || memory.bytes == 0) {
    fail(ucclEpInvalidArgument, "loopback: cannot register a region of {} bytes at {}: it must not be empty",
         memory.bytes, memory.data);
  }
  const auto unused = std::find_if(regions_.begin(), regions_.end(), [](const Region& region) { return !region.used; });
  const auto number = static_cast<uint32_t>(unused - regions_.begin());
  if (number == Segment::max_regions)
    fail(ucclEpOutOfMemory, "loopback: an endpoint has at most {} regions: deregister one first", number);
  std::shared_ptr<const Fd> fd = memory.fd >= 0 ? descriptor_of(memory.fd) : nullptr;
  if (unused == regions_.end()) regions_.emplace_back();
  Region& region = regions_[number];
  region.data = static_cast<char*>(memory.data);
  region.bytes = memory.bytes;
  region.fd = std::move(fd);
  region.used = true;

  RegionEntry& entry = segment_->region(number);
  entry.fd = region.fd ? region.fd->get() : -1;
  entry.fd_offset = memory.fd_offset;
  entry.address = reinterpret_cast<uintptr_t>(memory.data);
  entry.bytes = memory.bytes;
  const uint32_t generation = entry.generation.fetch_add(1) + 1;
  const LoopbackKey own{segment_->address().token, number, generation};
  *key = {};
  std::memcpy(key->bytes, &own, sizeof(own));
  return number;
}

// One for all regions of a file: there may be more regions than descriptors.
std::shared_ptr<const Fd> OwnRegions::descriptor_of(int fd) const {
  for (const Region& region : regions_) {
    if (region.fd && same_file(region.fd->get(), fd)) return region.fd;
  }
  return std::make_shared<const Fd>(duplicate(fd));
}

void OwnRegions::remove(uint32_t region) {
  if (region >= regions_.size() || !regions_[region].used) {
    fail(ucclEpInvalidArgument, "loopback: region {} is not registered", region);
  }
  withdraw(region);
}

void OwnRegions::withdraw(uint32_t number) {
  RegionEntry& entry = segment_->region(number);
  entry.generation.fetch_add(1);
  const Deadline deadline = Deadline::after_ms(1000);
  while (entry.users.load() != 0 && !deadline.expired()) std::this_thread::yield();
  Region& region = regions_[number];
  region.data = nullptr;
  region.bytes = 0;
  region.fd.reset();
  // A writer that was killed in the middle of a copy stays counted: the entry is not used again.
  region.used = entry.users.load() != 0;
}

char* OwnRegions::at(uint32_t number, uint64_t offset, uint64_t bytes) const noexcept {
  if (number >= regions_.size()) return nullptr;
  const Region& region = regions_[number];
  const bool inside = offset <= region.bytes && bytes <= region.bytes - offset;
  return region.data != nullptr && inside ? region.data + offset : nullptr;
}

PeerRegion::PeerRegion(std::shared_ptr<Segment> peer, const Key& key) : peer_(std::move(peer)) {
  LoopbackKey theirs;
  std::memcpy(&theirs, key.bytes, sizeof(theirs));
  const bool valid = theirs.segment == peer_->address().token && theirs.region < Segment::max_regions;
  if (!valid) fail(ucclEpInvalidArgument, "loopback: cannot import a key that another peer made");
  entry_ = &peer_->region(theirs.region);
  generation_ = theirs.generation;
  if (generation_ % 2 == 0 || entry_->generation.load() != generation_) {
    fail(ucclEpInvalidArgument,
         "loopback: cannot import a key whose region the peer has not registered, or has deregistered");
  }
  bytes_ = entry_->bytes;
  if (peer_->in_this_process()) {
    data_ = reinterpret_cast<char*>(entry_->address);
    return;
  }
  const int pid = peer_->address().pid;
  if (entry_->fd < 0) {
    fail(ucclEpNotSupported,
         "loopback: cannot reach the memory of process {}, which has no descriptor: only threads of that process can",
         pid);
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, entry_->fd);
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd)
    fail(ucclEpRemoteError, "loopback: cannot open the memory of process {}: {}: {}", pid, path, errno_text(errno));
  mapping_.emplace(SealedMemory::map(std::move(fd)));
  const uint64_t offset = entry_->fd_offset;
  // Still registered, so the descriptor was the region's when it was opened.
  if (entry_->generation.load() != generation_ || offset > mapping_->bytes() || bytes_ > mapping_->bytes() - offset) {
    fail(ucclEpInvalidArgument, "loopback: a region of the peer is not within the memory of its descriptor");
  }
  data_ = mapping_->data() + offset;
}

PeerRegion::Outcome PeerRegion::copy(const Operation& operation, char* local) const noexcept {
  if (operation.remote_offset > bytes_ || operation.bytes > bytes_ - operation.remote_offset) return Outcome::outside;
  entry_->users.fetch_add(1);
  const bool there = entry_->generation.load() == generation_;
  if (there) {
    char* remote = data_ + operation.remote_offset;
    const bool write = operation.kind == UCCLEP_OPERATION_WRITE;
    nic_copy(write ? remote : local, write ? local : remote, operation.bytes);
  }
  entry_->users.fetch_sub(1);
  return there ? Outcome::done : Outcome::gone;
}

}  // namespace ucclep::transport::loopback
