// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/shared_objects.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "base/fork.hpp"

namespace ucclep {
namespace {

struct PublishedObjects {
  std::mutex mutex;
  std::map<SharedObjectKey, std::shared_ptr<void>> objects;

  static PublishedObjects& instance() {
    constinit static PerProcess<PublishedObjects> all;
    return all.get();
  }
};

}  // namespace

Publication& Publication::operator=(Publication&& other) noexcept {
  if (this != &other) {
    withdraw();
    key_ = other.key_;
    published_ = std::exchange(other.published_, false);
  }
  return *this;
}

void Publication::withdraw() noexcept {
  if (!std::exchange(published_, false)) return;
  std::shared_ptr<void> last;  // an object may withdraw others when it goes: not under the lock
  PublishedObjects& published = PublishedObjects::instance();
  std::lock_guard lock(published.mutex);
  auto found = published.objects.find(key_);
  if (found == published.objects.end()) return;
  last = std::move(found->second);
  published.objects.erase(found);
}

Publication publish(const SharedObjectKey& key, std::shared_ptr<void> object) {
  PublishedObjects& published = PublishedObjects::instance();
  std::lock_guard lock(published.mutex);
  published.objects.insert_or_assign(key, std::move(object));
  return Publication(key);
}

std::shared_ptr<void> lookup(const SharedObjectKey& key) {
  PublishedObjects& published = PublishedObjects::instance();
  std::lock_guard lock(published.mutex);
  auto found = published.objects.find(key);
  return found == published.objects.end() ? nullptr : found->second;
}

}  // namespace ucclep
