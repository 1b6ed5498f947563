// SPDX-License-Identifier: Apache-2.0
#include "topology/machine_xml.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <pugixml.hpp>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "topology/words.hpp"

namespace ucclep::topology {
namespace {

constexpr int deepest = 64;        // objects in objects; real machines have a dozen
constexpr int max_cpus = 1 << 16;  // and NUMA nodes
constexpr std::string_view nvidia = "10de", amd = "1002";
constexpr unsigned class_display = 0x03, class_accelerator = 0x12, class_other_bridge = 0x0680, class_wireless = 0x0280;
constexpr int os_device_network = 2, os_device_verbs = 3;

std::string_view type_of(pugi::xml_node object) {
  return object.attribute("type").value();
}

std::string info_of(pugi::xml_node object, const char* name) {
  return object.find_child_by_attribute("info", "name", name).attribute("value").value();
}

// Of the PCI device or of an OS device below it; empty if nobody says.
std::string info_below(pugi::xml_node device, const char* name) {
  std::string value = info_of(device, name);
  for (pugi::xml_node child = device.child("object"); value.empty() && child; child = child.next_sibling("object")) {
    value = info_of(child, name);
  }
  return value;
}

class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  Machine read(const std::string& text) {
    pugi::xml_document document;
    const pugi::xml_parse_result parsed = document.load_buffer(text.data(), text.size());
    if (!parsed)
      fail(ucclEpInvalidArgument, "{} is not XML: {} at byte {}", source_, parsed.description(), parsed.offset);
    const pugi::xml_node topology = document.child("topology");
    const std::string_view version = topology.attribute("version").value();
    if (!topology || !version.starts_with("2.")) {
      fail(ucclEpInvalidArgument, "{} is not a topology of hwloc 2: expected <topology version=\"2.0\">", source_);
    }
    const pugi::xml_node root = topology.child("object");
    machine_.name = info_of(root, "HostName");
    collect(root, 0);
    place_cores();
    visit(root);
    if (nvswitch_) link_all_nvidia_gpus();
    std::ranges::sort(machine_.gpus, {}, [](const Gpu& gpu) { return gpu.place; });
    std::ranges::sort(machine_.nics, {}, [](const Nic& nic) { return std::tie(nic.place, nic.name); });
    return std::move(machine_);
  }

 private:
  [[noreturn]] void refuse(pugi::xml_node object, const char* attribute, const char* expected) const {
    fail(ucclEpInvalidArgument, "{}: {} of a {} is \"{}\", expected {}", source_, attribute, type_of(object),
         object.attribute(attribute).value(), expected);
  }

  // "0x0000000f,,0x00000001": words of 32 bits, the highest first; an empty one is zero.
  std::vector<int> set_of(pugi::xml_node object, const char* attribute) const {
    std::vector<int> members;
    std::string_view rest = object.attribute(attribute).value();
    for (int base = 0; !rest.empty() && base < max_cpus; base += 32) {
      const size_t comma = rest.rfind(',');
      const std::string word(comma == std::string_view::npos ? rest : rest.substr(comma + 1));
      rest = comma == std::string_view::npos ? "" : rest.substr(0, comma);
      char* end = nullptr;
      const unsigned long bits = std::strtoul(word.c_str(), &end, 16);
      if (*end != '\0' || bits > UINT32_MAX) refuse(object, attribute, "words of 32 bits in hexadecimal");
      for (int bit = 0; bit < 32; ++bit) {
        if (bits >> bit & 1) members.push_back(base + bit);
      }
    }
    if (!rest.empty()) refuse(object, attribute, "at most 65536 members");
    return members;
  }

  PciAddress address_of(pugi::xml_node object) const {
    const auto address = PciAddress::parse(object.attribute("pci_busid").value());
    if (!address) refuse(object, "pci_busid", "an address as in 0000:1b:00.0");
    return *address;
  }

  void collect(pugi::xml_node object, int depth) {
    if (depth > deepest) fail(ucclEpInvalidArgument, "{} has objects nested deeper than {}", source_, deepest);
    if (type_of(object) == "Core") cores_.push_back(set_of(object, "cpuset"));
    if (type_of(object) == "PU") cpus_.push_back(set_of(object, "cpuset"));
    if (type_of(object) == "NUMANode") memories_.push_back(object);
    for (const pugi::xml_node child : object.children("object")) collect(child, depth + 1);
  }

  // Memory without cores of its own, as GPUs and fast memory beside ordinary one have it, is no node to put a thread
  // on.
  void place_cores() {
    if (cpus_.empty())
      fail(ucclEpInvalidArgument, "{} has no processing unit: expected an <object type=\"PU\">", source_);
    std::vector<std::vector<int>>& cores = cores_.empty() ? cpus_ : cores_;
    for (const pugi::xml_node memory : memories_) {
      const std::vector<int> near = set_of(memory, "cpuset");
      NumaNode node{memory.attribute("os_index").as_int(), {}};
      std::erase_if(cores, [&](std::vector<int>& core) {
        if (core.empty() || !std::ranges::binary_search(near, core.front())) return false;
        node.cores.push_back(std::move(core));
        return true;
      });
      if (!node.cores.empty()) machine_.numa_nodes.push_back(std::move(node));
    }
    if (machine_.numa_nodes.empty()) fail(ucclEpInvalidArgument, "{} has no NUMA node with cores", source_);
  }

  void visit(pugi::xml_node object) {
    for (const pugi::xml_node child : object.children("object")) {
      if (type_of(child) == "Bridge" || type_of(child) == "PCIDev") {
        PciPlace place;
        place.numa = numa_index(object);
        visit_io(child, place);
      } else {
        visit(child);
      }
    }
  }

  void visit_io(pugi::xml_node object, PciPlace place) {
    if (type_of(object) == "PCIDev") {
      place.address = address_of(object);
      add_device(object, place);
    } else if (type_of(object) == "Bridge") {
      if (std::string_view(object.attribute("bridge_type").value()).starts_with("0-")) {
        place.host_bridge = host_bridges_++;
      } else {
        place.bridges.push_back(address_of(object));
      }
      for (const pugi::xml_node child : object.children("object")) visit_io(child, place);
    }
  }

  void add_device(pugi::xml_node device, const PciPlace& place) {
    const std::string_view type = device.attribute("pci_type").value();  // "0302 [10de:2330] [10de:16c1] a1"
    if (type.size() < 16) refuse(device, "pci_type", "a class, then vendor and device as in 0302 [10de:2330]");
    const unsigned long kind = std::strtoul(std::string(type.substr(0, 4)).c_str(), nullptr, 16);
    const std::string_view vendor = type.substr(6, 4);
    nvswitch_ |= vendor == nvidia && kind == class_other_bridge;
    const bool computes = kind >> 8 == class_display || kind >> 8 == class_accelerator;
    if (computes && vendor == nvidia) add_gpu(device, place, "NVIDIA");
    if (computes && vendor == amd) add_gpu(device, place, "AMD");
    if (kind != class_wireless) add_nics(device, place);
  }

  void add_gpu(pugi::xml_node device, const PciPlace& place, const std::string& vendor) {
    Gpu gpu{place, vendor, info_below(device, "GPUModel"), {}};
    if (gpu.model.empty()) gpu.model = info_below(device, "PCIDevice");
    if (gpu.model.empty()) gpu.model = vendor + " GPU";
    gpu.links = {info_below(device, "UcclepLinkKind"), info_below(device, "UcclepLinkIsland"),
                 info_below(device, "UcclepLinkFabric")};
    const std::string hive = info_below(device, "XGMIHiveID");
    if (gpu.links.kind.empty() && !hive.empty()) gpu.links = {"xgmi", hive, ""};
    machine_.gpus.push_back(std::move(gpu));
  }

  // One for each verbs device of the function; where there is none, one for each network interface.
  void add_nics(pugi::xml_node device, const PciPlace& place) {
    std::vector<pugi::xml_node> verbs;
    std::vector<std::string> interfaces;
    for (const pugi::xml_node child : device.children("object")) {
      const int kind = child.attribute("osdev_type").as_int(-1);
      if (kind == os_device_verbs) verbs.push_back(child);
      if (kind == os_device_network) interfaces.emplace_back(child.attribute("name").value());
    }
    const double gigabits = leading_number(info_below(device, "UcclepGigabits"));
    for (const pugi::xml_node nic : verbs) {
      machine_.nics.push_back({place, nic.attribute("name").value(), interfaces, true, any_port_active(nic), gigabits});
    }
    if (!verbs.empty()) return;
    for (const std::string& name : interfaces) machine_.nics.push_back({place, name, {}, false, true, gigabits});
  }

  static bool any_port_active(pugi::xml_node verbs) {
    for (int port = 1;; ++port) {
      const std::string state = info_of(verbs, fmt::format("Port{}State", port).c_str());
      if (state.empty()) return port == 1;
      if (state == "4") return true;
    }
  }

  void link_all_nvidia_gpus() {
    for (Gpu& gpu : machine_.gpus) {
      if (gpu.links.kind.empty() && gpu.vendor == "NVIDIA") gpu.links = {"nvlink", "nvswitch", ""};
    }
  }

  // The object's NUMA node, if it is near one only.
  int numa_index(pugi::xml_node object) const {
    const std::vector<int> near = set_of(object, "nodeset");
    int found = -1;
    for (size_t i = 0; i < machine_.numa_nodes.size(); ++i) {
      if (!std::ranges::binary_search(near, machine_.numa_nodes[i].number)) continue;
      if (found >= 0) return -1;
      found = static_cast<int>(i);
    }
    return found;
  }

  const std::string& source_;
  Machine machine_;
  std::vector<std::vector<int>> cores_, cpus_;  // sets of CPUs
  std::vector<pugi::xml_node> memories_;        // NUMANode
  int host_bridges_ = 0;
  bool nvswitch_ = false;
};

}  // namespace

Machine machine_from_xml(const std::string& text, const std::string& source) {
  return Reader(source).read(text);
}

}  // namespace ucclep::topology
