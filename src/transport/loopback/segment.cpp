// SPDX-License-Identifier: Apache-2.0
#include "transport/loopback/segment.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"

namespace ucclep::transport::loopback {
namespace {

constexpr size_t regions_at = 4096;
constexpr size_t rings_at = regions_at + Segment::max_regions * sizeof(RegionEntry);
static_assert(sizeof(SegmentHeader) <= regions_at && rings_at % alignof(RingWords) == 0);

constexpr size_t ring_bytes(uint32_t entries) {
  return sizeof(RingWords) + entries * sizeof(RingEntry);
}

constexpr size_t segment_bytes(uint32_t peers, uint32_t entries) {
  return rings_at + peers * ring_bytes(entries);
}

// The segments that this process made.
struct Known {
  std::mutex mutex;
  std::map<std::pair<Token, Token>, std::weak_ptr<Segment>> segments;

  static Known& instance() {
    constinit static PerProcess<Known> all;
    return all.get();
  }
};

std::shared_ptr<Segment> find(const SegmentAddress& address) {
  Known& known = Known::instance();
  std::lock_guard lock(known.mutex);
  const auto found = known.segments.find({address.process, address.token});
  return found == known.segments.end() ? nullptr : found->second.lock();
}

SealedMemory open_in(const SegmentAddress& address) {
  const std::string path = fmt::format("/proc/{}/fd/{}", address.pid, address.fd);
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) {
    fail(ucclEpRemoteError, "loopback: cannot open the endpoint of process {}: {}: {}", address.pid, path,
         errno_text(errno));
  }
  return SealedMemory::map(std::move(fd));
}

}  // namespace

std::shared_ptr<Segment> Segment::create(uint32_t peers, uint32_t entries) {
  entries = std::bit_ceil(entries);
  SealedMemory memory = SealedMemory::create(segment_bytes(peers, entries));
  SegmentAddress address;
  address.process = this_process();
  address.token = Token::random();
  address.pid = getpid();
  address.fd = memory.fd();
  auto* header = new (memory.data()) SegmentHeader{};
  header->token = address.token;
  header->peers = peers;
  header->entries = entries;
  header->magic = SegmentHeader::the_magic;
  auto segment = std::make_shared<Segment>(std::move(memory), address);
  Known& known = Known::instance();
  std::lock_guard lock(known.mutex);
  std::erase_if(known.segments, [](const auto& entry) { return entry.second.expired(); });
  known.segments[{address.process, address.token}] = segment;
  return segment;
}

std::shared_ptr<Segment> Segment::open(std::span<const std::byte> bytes) {
  SegmentAddress address;
  if (bytes.size() == sizeof(address)) std::memcpy(&address, bytes.data(), sizeof(address));
  if (bytes.size() != sizeof(address) || address.magic != SegmentHeader::the_magic) {
    fail(ucclEpInvalidArgument, "loopback: invalid peer address ({} bytes)", bytes.size());
  }
  if (address.process == this_process()) {
    std::shared_ptr<Segment> segment = find(address);
    if (segment == nullptr) fail(ucclEpRemoteError, "loopback: the peer's endpoint, in this process, is closed");
    return segment;
  }
  SealedMemory memory = open_in(address);
  const auto* header = reinterpret_cast<const SegmentHeader*>(memory.data());
  const bool ours = memory.bytes() >= rings_at && header->magic == SegmentHeader::the_magic &&
                    header->token == address.token && header->peers <= memory.bytes() &&
                    header->entries <= memory.bytes() &&
                    segment_bytes(header->peers, header->entries) == memory.bytes();
  if (!ours)
    fail(ucclEpRemoteError, "loopback: descriptor {} of process {} is not an endpoint", address.fd, address.pid);
  return std::make_shared<Segment>(std::move(memory), address);
}

Segment::Segment(SealedMemory memory, const SegmentAddress& address)
    : memory_(std::move(memory)), address_(address), peers_(header().peers), entries_(header().entries) {}

RegionEntry& Segment::region(uint32_t number) const {
  return reinterpret_cast<RegionEntry*>(memory_.data() + regions_at)[number];
}

RingWords& Segment::ring(uint32_t peer) const {
  return *reinterpret_cast<RingWords*>(memory_.data() + rings_at + peer * ring_bytes(entries_));
}

RingEntry* Segment::ring_entries(uint32_t peer) const {
  return reinterpret_cast<RingEntry*>(&ring(peer) + 1);
}

}  // namespace ucclep::transport::loopback
