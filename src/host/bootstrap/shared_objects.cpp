// SPDX-License-Identifier: Apache-2.0
#include "host/bootstrap/shared_objects.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace ucclep {
namespace {

// Never destroyed: ranks may withdraw while the process exits.
struct Registry {
  std::mutex mutex;
  std::map<SharedObjectKey, std::shared_ptr<void>> objects;

  static Registry& instance() {
    static auto* registry = new Registry;
    return *registry;
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
  Registry& registry = Registry::instance();
  std::lock_guard lock(registry.mutex);
  auto found = registry.objects.find(key_);
  if (found == registry.objects.end()) return;
  last = std::move(found->second);
  registry.objects.erase(found);
}

Publication publish(const SharedObjectKey& key, std::shared_ptr<void> object) {
  Registry& registry = Registry::instance();
  std::lock_guard lock(registry.mutex);
  registry.objects.insert_or_assign(key, std::move(object));
  return Publication(key);
}

std::shared_ptr<void> lookup(const SharedObjectKey& key) {
  Registry& registry = Registry::instance();
  std::lock_guard lock(registry.mutex);
  auto found = registry.objects.find(key);
  return found == registry.objects.end() ? nullptr : found->second;
}

}  // namespace ucclep
