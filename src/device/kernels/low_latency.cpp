// SPDX-License-Identifier: Apache-2.0
// LL entry points. _lines: for groups whose rows all travel as lines, _few: and few of them; of_living: that have
// masks; _network: for groups in several domains. send, complete: the halves; what arrives by the network is alike,
// quantised or not.
#include "ucclep/device/ll/dispatch_few.hpp"
#include "ucclep/device/ll/network.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(ll_update, LlUpdateArgs) {
  ll::update(args);
}
UCCLEP_KERNEL(ll_dispatch, LlDispatchArgs) {
  ll::dispatch<ll::Forward, ll::AnyForm>(args);
}
UCCLEP_KERNEL(ll_dispatch_fp8, LlDispatchArgs) {
  ll::dispatch<ll::Quantise, ll::AnyForm>(args);
}
UCCLEP_KERNEL(ll_dispatch_lines, LlDispatchArgs) {
  ll::dispatch<ll::Forward, ll::LinesOnly>(args);
}
UCCLEP_KERNEL(ll_dispatch_fp8_lines, LlDispatchArgs) {
  ll::dispatch<ll::Quantise, ll::LinesOnly>(args);
}
UCCLEP_KERNEL(ll_dispatch_few, LlDispatchArgs) {
  ll::dispatch_few<ll::Forward>(args);
}
UCCLEP_KERNEL(ll_dispatch_fp8_few, LlDispatchArgs) {
  ll::dispatch_few<ll::Quantise>(args);
}
UCCLEP_KERNEL(ll_dispatch_lines_of_living, LlDispatchArgs) {
  ll::dispatch<ll::Forward, ll::LinesOfLiving>(args);
}
UCCLEP_KERNEL(ll_dispatch_fp8_lines_of_living, LlDispatchArgs) {
  ll::dispatch<ll::Quantise, ll::LinesOfLiving>(args);
}
UCCLEP_KERNEL(ll_dispatch_network, LlDispatchArgs) {
  ll::dispatch<ll::Forward, ll::AcrossDomains>(args);
}
UCCLEP_KERNEL(ll_dispatch_fp8_network, LlDispatchArgs) {
  ll::dispatch<ll::Quantise, ll::AcrossDomains>(args);
}
UCCLEP_KERNEL(ll_send_dispatch, LlDispatchArgs) {
  ll::dispatch<ll::Forward, ll::AnyForm, Part::first>(args);
}
UCCLEP_KERNEL(ll_send_dispatch_fp8, LlDispatchArgs) {
  ll::dispatch<ll::Quantise, ll::AnyForm, Part::first>(args);
}
UCCLEP_KERNEL(ll_send_dispatch_network, LlDispatchArgs) {
  ll::dispatch<ll::Forward, ll::AcrossDomains, Part::first>(args);
}
UCCLEP_KERNEL(ll_send_dispatch_fp8_network, LlDispatchArgs) {
  ll::dispatch<ll::Quantise, ll::AcrossDomains, Part::first>(args);
}
UCCLEP_KERNEL(ll_complete_dispatch, LlDispatchArgs) {
  ll::complete_dispatch<ll::Forward, ll::AnyForm>(args);
}
UCCLEP_KERNEL(ll_complete_dispatch_fp8, LlDispatchArgs) {
  ll::complete_dispatch<ll::Quantise, ll::AnyForm>(args);
}
UCCLEP_KERNEL(ll_complete_dispatch_network, LlDispatchArgs) {
  ll::complete_dispatch<ll::Forward, ll::AcrossDomains>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
