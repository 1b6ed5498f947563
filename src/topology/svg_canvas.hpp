// SPDX-License-Identifier: Apache-2.0
// The few elements of SVG that a picture needs. Shapes have the class that `svg_canvas.cpp` styles.
#pragma once
#include <string>

namespace ucclep::topology {

struct Box;

class Canvas {
 public:
  // A title shows where the pointer rests. `style` adds to that of the class.
  void box(const Box& box, const char* shape_class, const std::string& style = "", const std::string& title = "");
  void text(double x, double y, const char* text_class, const std::string& text);
  void path(const std::string& data, const char* shape_class, const std::string& style = "");
  // Filled, with its tip at (x, y).
  void arrow_head(double x, double y, bool downwards, const std::string& colour);

  std::string finish(double width, double height) const;

 private:
  std::string elements_;
};

// Well apart for any number of rails.
std::string colour_of_rail(int rail, int rails);

}  // namespace ucclep::topology
