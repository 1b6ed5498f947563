// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "topology/svg_canvas.hpp"
#include "topology/svg_layout.hpp"
#include "topology/text.hpp"
#include "topology/words.hpp"

namespace ucclep::topology {
namespace {

constexpr double legend_width = 560;

class MachinePainter {
 public:
  MachinePainter(Canvas& canvas, const std::vector<RankFacts>& ranks, const Plan& plan, size_t number, double top)
      : canvas_(canvas),
        plan_(plan),
        members_(plan.machines[number]),
        machine_(*ranks[static_cast<size_t>(members_.ranks.front())].machine),
        layout_(lay_out(ranks, plan, members_, top)) {}

  const Box& paint() {
    canvas_.box(layout_.box, "machine");
    canvas_.text(layout_.box.x + 14, layout_.box.y + 23, "title", layout_.title);
    for (size_t i = 0; i < layout_.numa_boxes.size(); ++i) paint_numa(i);
    paint_links();
    for (size_t i = 0; i < layout_.stacks.size(); ++i) paint_arrows(i);
    for (const Endpoint& endpoint : layout_.endpoints) paint_endpoint(endpoint);
    for (const NicStack& stack : layout_.stacks) {
      for (size_t i = 0; i < stack.nics.size(); ++i) paint_nic(stack.nics[i], stack.boxes[i]);
    }
    return layout_.box;
  }

 private:
  struct Point {
    double x, y;
  };
  struct Ink {
    Path path;
    std::string colour;
  };

  void paint_numa(size_t index) {
    const Box& box = layout_.numa_boxes[index];
    canvas_.box(box, "numa");
    if (index >= machine_.numa_nodes.size()) {
      canvas_.text(box.x + 14, box.bottom() - 40, "label", "near no NUMA node");
      return;
    }
    const NumaNode& node = machine_.numa_nodes[index];
    std::vector<int> cpus, proxies;
    for (const std::vector<int>& core : node.cores) cpus.insert(cpus.end(), core.begin(), core.end());
    for (const int rank : members_.ranks) {
      for (const Proxy& proxy : plan_.ranks[static_cast<size_t>(rank)].proxies) {
        if (std::ranges::find(cpus, proxy.cpu) != cpus.end()) proxies.push_back(proxy.cpu);
      }
    }
    canvas_.text(box.x + 14, box.bottom() - 40, "label", fmt::format("NUMA node {}", node.number));
    canvas_.text(box.x + 14, box.bottom() - 24, "small",
                 fmt::format("{}, CPUs {}", plural(node.cores.size(), "core"), ranges(cpus)));
    canvas_.text(box.x + 14, box.bottom() - 10, "small", "proxies on " + (proxies.empty() ? "none" : ranges(proxies)));
  }

  // GPUs that are linked hang on one bar.
  void paint_links() {
    std::map<std::string, std::vector<const Box*>> islands;
    for (const Endpoint& endpoint : layout_.endpoints) {
      if (endpoint.gpu < 0) continue;
      const GpuLinks& links = machine_.gpus[static_cast<size_t>(endpoint.gpu)].links;
      if (links.kind.empty()) continue;
      islands[links_text(links)].push_back(&endpoint.box);
    }
    for (const auto& [name, boxes] : islands) {
      for (const Box* box : boxes)
        canvas_.path(fmt::format("M {:g} {:g} V {:g}", box->centre(), layout_.links_top + 18, box->y), "link");
      const double left = boxes.front()->x, right = boxes.back()->right();
      canvas_.box({left, layout_.links_top, right - left, 22}, "links");
      canvas_.text((left + right) / 2, layout_.links_top + 15, "centred", name);
    }
  }

  void paint_endpoint(const Endpoint& endpoint) {
    const Box& box = endpoint.box;
    const std::string who =
        endpoint.ranks.empty() ? "no rank" : (endpoint.ranks.size() == 1 ? "rank " : "ranks ") + ranges(endpoint.ranks);
    if (endpoint.gpu < 0) {
      canvas_.box(box, "cpu");
      canvas_.text(box.centre(), box.y + 32, "centred", who);
      canvas_.text(box.centre(), box.y + 48, "centred-small", "on the CPU");
      return;
    }
    const Gpu& gpu = machine_.gpus[static_cast<size_t>(endpoint.gpu)];
    canvas_.box(box, endpoint.ranks.empty() ? "idle" : "gpu", "", gpu.model);
    canvas_.text(box.centre(), box.y + 17, "centred", who);
    canvas_.text(box.centre(), box.y + 32, "centred-small", fmt::format("GPU {}", endpoint.gpu));
    canvas_.text(box.centre(), box.y + 46, "centred-small", gpu.model.substr(0, 24));
    canvas_.text(box.centre(), box.y + 60, "centred-small", gpu.place.address.text());
  }

  int rail_of(int nic) const {
    const auto rail = std::ranges::find(members_.rails, machine_.nics[static_cast<size_t>(nic)].name);
    return rail == members_.rails.end() ? -1 : static_cast<int>(rail - members_.rails.begin());
  }

  std::string colour_of(int nic) const { return colour_of_rail(rail_of(nic), static_cast<int>(members_.rails.size())); }

  void paint_nic(int index, const Box& box) {
    const Nic& nic = machine_.nics[static_cast<size_t>(index)];
    const int rail = rail_of(index);
    std::string facts = nic.gigabits > 0 ? fmt::format("{:g} Gb/s", nic.gigabits) : nic.place.address.text().substr(5);
    facts += rail < 0 ? ", not used" : fmt::format(", rail {}", rail);
    const std::string pci = nic.place.host_bridge < 0 ? "" : nic.place.address.text();
    if (rail < 0) {
      canvas_.box(box, "idle", "", pci);
    } else {
      canvas_.box(box, "nic", fmt::format("fill:{0};fill-opacity:0.15;stroke:{0}", colour_of(index)), pci);
    }
    canvas_.text(box.centre(), box.y + 14, "centred", nic.name);
    canvas_.text(box.centre(), box.y + 28, "centred-small", facts);
  }

  Path path_between(const Endpoint& endpoint, int nic) const {
    for (const int rank : endpoint.ranks) {
      for (const NicUse& use : plan_.ranks[static_cast<size_t>(rank)].nics) {
        if (use.nic == nic) return use.path;
      }
    }
    return Path::machine;
  }

  // Each NIC has a lane of its own, down from the GPU and along the left side of the stack; one alone is entered from
  // above. Stacks side by side turn at different heights.
  void paint_arrows(size_t index) {
    const NicStack& stack = layout_.stacks[index];
    const size_t count = stack.nics.size();
    for (const int user : stack.endpoints) {
      const Endpoint& endpoint = layout_.endpoints[static_cast<size_t>(user)];
      for (size_t i = 0; i < count; ++i) {
        const double lane = 5 * static_cast<double>(i), middle = 2.5 * static_cast<double>(count - 1);
        const double height =
            count > 1 ? lane * 7 / static_cast<double>(count + 1) : 5 * static_cast<double>(index % 5);
        const Point from{endpoint.box.centre() + lane - middle, endpoint.box.bottom()};
        paint_arrow(from, from.y + 34 - height, stack.boxes[i], count > 1 ? stack.boxes[i].x - 10 - lane : 0,
                    {path_between(endpoint, stack.nics[i]), colour_of(stack.nics[i])});
      }
    }
  }

  // `along`: where the lane beside the stack is, 0 for none.
  void paint_arrow(Point from, double turn, const Box& nic, double along, const Ink& ink) {
    const char* shape_class = ink.path == Path::pcie_switch ? "near" : "far";
    const std::string style = "stroke:" + ink.colour;
    if (along == 0) {
      canvas_.path(fmt::format("M {:g} {:g} V {:g} H {:g} V {:g}", from.x, from.y, turn, nic.centre(), nic.y - 6),
                   shape_class, style);
      canvas_.arrow_head(nic.centre(), nic.y, true, ink.colour);
      return;
    }
    const double middle = nic.y + nic.height / 2;
    canvas_.path(fmt::format("M {:g} {:g} V {:g} H {:g} V {:g} H {:g}", from.x, from.y, turn, along, middle, nic.x - 6),
                 shape_class, style);
    canvas_.arrow_head(nic.x, middle, false, ink.colour);
  }

  Canvas& canvas_;
  const Plan& plan_;
  const MachinePlan& members_;
  const Machine& machine_;
  MachineLayout layout_;
};

}  // namespace

std::string to_svg(const std::vector<RankFacts>& ranks, const Plan& plan) {
  Canvas canvas;
  double width = 0, bottom = 0;
  for (size_t number = 0; number < plan.machines.size(); ++number) {
    MachinePainter painter(canvas, ranks, plan, number, bottom + 16);
    const Box& box = painter.paint();
    width = std::max(width, box.right());
    bottom = box.bottom();
  }
  canvas.text(30, bottom + 20, "small",
              "Arrows: the NICs that a rank uses; dashed where the way is not through PCIe switches only.");
  canvas.text(30, bottom + 34, "small", "NICs of one colour are a rail: those of two machines talk to each other.");
  return canvas.finish(std::max(width + 16, legend_width), bottom + 46);
}

}  // namespace ucclep::topology
