// SPDX-License-Identifier: Apache-2.0
// The one translation unit that holds {fmt}'s code. Debian packages only a shared libfmt, which libucclep.so must not
// need, and the header-only form would compile all of {fmt} in every file that includes it: four seconds each instead
// of half a one.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

// What format.h only declares, for char.
template auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<format_context>, locale_ref);
template locale_ref::locale_ref(const std::locale& locale);
template auto locale_ref::get<std::locale>() const -> std::locale;

}  // namespace detail
FMT_END_NAMESPACE
