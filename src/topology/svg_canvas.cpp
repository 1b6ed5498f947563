// SPDX-License-Identifier: Apache-2.0
#include "topology/svg_canvas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "topology/svg_layout.hpp"

namespace ucclep::topology {
namespace {

constexpr const char* style = R"(
    text { font-family: Helvetica, Arial, 'Liberation Sans', sans-serif; fill: #1f2933; }
    .title { font-size: 15px; font-weight: bold; } .label { font-size: 12px; font-weight: bold; }
    .small { font-size: 10px; fill: #52606d; }
    .centred { font-size: 12px; font-weight: bold; text-anchor: middle; }
    .centred-small { font-size: 10px; fill: #52606d; text-anchor: middle; }
    .paper { fill: #ffffff; } .machine { fill: #f5f7fa; stroke: #9aa5b1; } .numa { fill: #ffffff; stroke: #cbd2d9; }
    .gpu { fill: #e3f8e5; stroke: #3f9142; } .cpu { fill: #e6f6ff; stroke: #2b6cb0; }
    .idle { fill: #f5f7fa; stroke: #9aa5b1; } .nic { stroke-width: 1.5; }
    .links { fill: #c6e7c8; stroke: #3f9142; } .link { fill: none; stroke: #3f9142; stroke-width: 3; }
    .near { fill: none; stroke-width: 2; } .far { fill: none; stroke-width: 2; stroke-dasharray: 5 3; }
)";

// Names come from files: what XML does not allow is left out.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else if (c == '"') {
      result += "&quot;";
    } else if (static_cast<unsigned char>(c) >= ' ') {
      result += c;
    }
  }
  return result;
}

std::string style_attribute(const std::string& style) {
  return style.empty() ? "" : fmt::format(" style=\"{}\"", style);
}

}  // namespace

void Canvas::box(const Box& box, const char* shape_class, const std::string& style, const std::string& title) {
  elements_ += fmt::format("  <rect class=\"{}\" x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" rx=\"5\"{}",
                           shape_class, box.x, box.y, box.width, box.height, style_attribute(style));
  elements_ += title.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(title));
}

void Canvas::text(double x, double y, const char* text_class, const std::string& text) {
  elements_ += fmt::format("  <text class=\"{}\" x=\"{:g}\" y=\"{:g}\">{}</text>\n", text_class, x, y, escaped(text));
}

void Canvas::path(const std::string& data, const char* shape_class, const std::string& style) {
  elements_ += fmt::format("  <path class=\"{}\" d=\"{}\"{}/>\n", shape_class, data, style_attribute(style));
}

void Canvas::arrow_head(double x, double y, bool downwards, const std::string& colour) {
  constexpr double length = 8, half = 4;
  const std::string data = downwards ? fmt::format("M {:g} {:g} l {:g} {:g} h {:g} z", x, y, -half, -length, 2 * half)
                                     : fmt::format("M {:g} {:g} l {:g} {:g} v {:g} z", x, y, -length, -half, 2 * half);
  elements_ += fmt::format("  <path class=\"head\" d=\"{}\" style=\"fill:{}\"/>\n", data, colour);
}

std::string Canvas::finish(double width, double height) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" height=\"{1:g}\">\n"
      "  <style>{2}  </style>\n  <rect class=\"paper\" x=\"0\" y=\"0\" width=\"{0:g}\" height=\"{1:g}\"/>\n{3}</svg>\n",
      width, height, style, elements_);
}

std::string colour_of_rail(int rail, int rails) {
  // Neighbours differ in lightness too, since many rails leave little between two hues.
  const double hue = 6.0 * rail / std::max(rails, 1), light = rail % 2 == 0 ? 0.42 : 0.56,
               chroma = 0.62 * (1 - std::abs(2 * light - 1));
  const auto channel = [&](double offset) {
    const double place = std::fmod(hue + offset, 6.0);
    const double share = std::clamp(std::abs(place - 3) - 1, 0.0, 1.0);
    return static_cast<int>(std::lround(255 * (light - chroma / 2 + chroma * share)));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(4), channel(2));
}

}  // namespace ucclep::topology
