// SPDX-License-Identifier: Apache-2.0
// The command line of the perf tools, and the figures made of samples.
#include "options.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "measurement.hpp"

using namespace ucclep::perf;

namespace {

Options parse(std::vector<std::string> arguments, Timed timed = Timed::calls) {
  arguments.insert(arguments.begin(), "dispatch_perf");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  bool done = false;
  return parse_options(static_cast<int>(argv.size()), argv.data(), "dispatch_perf", "", &done, timed);
}

std::string usage_error(const std::vector<std::string>& arguments, Timed timed = Timed::calls) {
  try {
    parse(arguments, timed);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("perf tools: defaults depend on the mode", "[perf][options]") {
  const Options ll = parse({"--device", "host"});
  CHECK(ll.ranks() == 8);
  CHECK(ll.sizes() == std::vector<int>{128});
  CHECK(ll.shape().layout == UCCLEP_LAYOUT_EXPERT_MAJOR);
  const Options ht = parse({"--mode", "ht", "-g", "4"});
  CHECK(ht.ranks() == 4);
  CHECK(ht.sizes() == std::vector<int>{4096});
  CHECK(ht.shape().layout == UCCLEP_LAYOUT_FLAT);
}

TEST_CASE("perf tools: sizes go by factor or by step", "[perf][options]") {
  CHECK(parse({"-b", "8", "-e", "64"}).sizes() == std::vector<int>{8, 16, 32, 64});
  CHECK(parse({"-b", "8", "-e", "100", "-f", "3"}).sizes() == std::vector<int>{8, 24, 72});
  CHECK(parse({"-b", "1", "-e", "7", "-i", "3"}).sizes() == std::vector<int>{1, 4, 7});
  CHECK(parse({"-b", "1K", "-e", "2K"}).sizes() == std::vector<int>{1024, 2048});
}

TEST_CASE("perf tools: lists make one run for each combination", "[perf][options]") {
  CHECK(parse({}).runs().size() == 1);
  const std::vector<Options> runs =
      parse({"--mode", "ht", "--sms", "16,24", "--dtype", "bf16,fp8", "--layout", "flat"}).runs();
  REQUIRE(runs.size() == 4);
  CHECK(runs[0].sms == 16);
  CHECK(runs[1].sms == 24);
  CHECK(runs[1].shape().dtype == ucclEpBfloat16);
  CHECK(runs[2].shape().dtype == ucclEpFloat8e4m3);
  CHECK(runs[3].shape().layout == UCCLEP_LAYOUT_FLAT);
}

TEST_CASE("perf tools: a sweep goes through powers of two", "[perf][options]") {
  const std::vector<int> ht = parse({"--sweep", "--mode", "ht"}).sizes();
  CHECK(ht.size() == 14);
  CHECK(ht.front() == 1);
  CHECK(ht.back() == 8192);
  CHECK(parse({"--sweep"}).sizes().back() == 1024);
  CHECK(parse({"--sweep", "-b", "8", "-e", "32"}).sizes() == std::vector<int>{8, 16, 32});
}

TEST_CASE("perf tools: ranks are processes times threads times gpus", "[perf][options]") {
  CHECK(parse({"-t", "8"}).ranks() == 8);
  CHECK(parse({"-t", "2", "-g", "4"}).ranks() == 8);
  CHECK(parse({"--procs", "4"}).ranks() == 4);
  CHECK(parse({"--procs", "2", "-g", "4"}).ranks() == 8);
  CHECK(parse({"-g", "2", "-g", "4"}).ranks() == 4);
}

TEST_CASE("perf tools: nodes are virtual, and loopback joins them unless something else is named", "[perf][options]") {
  CHECK(parse({}).nodes == 0);
  CHECK(parse({}).transport.empty());
  CHECK(parse({"-g", "4", "--nodes", "2"}).transport == "loopback");
  CHECK(parse({"-g", "4", "--nodes", "2", "--transport", "ofi:tcp"}).transport == "ofi:tcp");
}

TEST_CASE("perf tools: what the wire has is held against what must cross", "[perf][measurement]") {
  Series series;
  series.name = "dispatch+combine";
  series.row_bytes = 3000;
  series.parts = {{"dispatch", 1000, false}, {"combine", 2000, false}};
  series.samples.resize(2);
  series.wire = {130'000, 60, 50, {40, 30, 14}};  // of 2 iterations
  const std::vector<int> nodes{0, 0, 1};
  const WireFigures ll = wire_figures(series, nodes);
  CHECK(ll.bytes == Approx(65'000));
  CHECK(ll.messages == Approx(30));
  CHECK(ll.commands == Approx(25));
  CHECK(ll.must_cross_rows == Approx(40));  // 20 there, 20 back
  CHECK(ll.must_cross_bytes == Approx(60'000));
  CHECK(ll.messages_allowed == Approx(4 * 2 * 2 + 7));  // pairs, a header and a word, operations; pieces
  series.parts[0].by_node = true;
  CHECK(wire_figures(series, nodes).must_cross_rows == Approx(35));  // 15 there, 20 back
  CHECK(wire_figures(series, nodes).must_cross_bytes == Approx(55'000));
  series.parts[1].by_node = true;
  CHECK(wire_figures(series, nodes).must_cross_rows == Approx(30));
}

TEST_CASE("perf tools: a bad command line names the option", "[perf][options]") {
  CHECK(usage_error({"--experts", "10", "-g", "4"}).find("--experts 10") != std::string::npos);
  CHECK(usage_error({"-g", "4", "--nodes", "3"}).find("--nodes 3") != std::string::npos);
  CHECK(usage_error({"--topk", "9", "--experts", "8"}).find("--topk 9") != std::string::npos);
  CHECK(usage_error({"--layout", "flat"}).find("--layout flat") != std::string::npos);
  CHECK(usage_error({"--mode", "ht", "--layout", "rank_major"}).find("--mode ht") != std::string::npos);
  CHECK(usage_error({"--hidden", "7"}).find("--hidden 7") != std::string::npos);
  CHECK(usage_error({"--hidden", "64", "--dtype", "fp8"}).find("multiple of 128") != std::string::npos);
  CHECK(usage_error({"--late", "9:100"}).find("--late") != std::string::npos);
  CHECK(usage_error({"--late", "x"}).find("--late") != std::string::npos);
  CHECK(usage_error({"--corrupt", "-c", "0"}).find("--corrupt") != std::string::npos);
  CHECK(usage_error({"-b", "16", "-e", "8"}).find("-e 8") != std::string::npos);
  CHECK(usage_error({"--no-such-option"}).find("--no-such-option") != std::string::npos);
  CHECK(usage_error({"--sms", "-1"}).find("--sms -1") != std::string::npos);
  CHECK(usage_error({"--time", "sundial"}).find("--time") != std::string::npos);
  CHECK(usage_error({"--sms", "1,many"}).find("--sms 1,many") != std::string::npos);
  CHECK(usage_error({"--dtype", "bf16,int4"}).find("--dtype int4") != std::string::npos);
  CHECK(usage_error({"--mode", "ht", "--layout", "flat,rank_major"}).find("--layout rank_major") != std::string::npos);
  CHECK(usage_error({"-g", "4", "--skew", "5"}).find("--skew 5") != std::string::npos);
  CHECK(usage_error({"--graph", "--device", "host"}).find("--graph") != std::string::npos);
  CHECK(usage_error({"-n", "0"}).find("-n 0") != std::string::npos);
}

TEST_CASE("perf tools: rounds have options and defaults of their own", "[perf][options]") {
  const Options host = parse({"--device", "host"}, Timed::rounds);
  CHECK(host.rounds == 10);
  CHECK(host.ranks() == 2);
  CHECK(host.sizes() == std::vector<int>{8});
  CHECK(host.iterations == 7);
  CHECK(host.forms == std::vector<std::string>{"counted", "all"});
  CHECK(!host.graph);
  CHECK(host.shape().returns_tokens);
  const Options asked = parse({"--device", "host", "--rounds", "3", "--form", "all", "--scope", "warp", "-e", "64",
                               "--hidden", "1024", "--procs", "4"},
                              Timed::rounds);
  CHECK(asked.rounds == 3);
  CHECK(asked.forms == std::vector<std::string>{"all"});
  CHECK(asked.scopes == std::vector<std::string>{"warp"});
  CHECK(asked.sizes() == std::vector<int>{64});
  CHECK(asked.hidden == 1024);
  CHECK(asked.ranks() == 4);
  CHECK(!parse({}).shape().returns_tokens);
  CHECK(usage_error({"--rounds", "0"}, Timed::rounds).find("--rounds 0") != std::string::npos);
  CHECK(usage_error({"--rounds", "-1"}, Timed::rounds).find("--rounds -1") != std::string::npos);
  CHECK(usage_error({"--blocks", "-1"}, Timed::rounds).find("--blocks -1") != std::string::npos);
  CHECK(usage_error({"--block-threads", "544"}, Timed::rounds).find("--block-threads 544") != std::string::npos);
  CHECK(usage_error({"--block-threads", "-32"}, Timed::rounds).find("--block-threads -32") != std::string::npos);
  CHECK(usage_error({"--layout", "rank_major"}, Timed::rounds).find("--layout rank_major") != std::string::npos);
  CHECK(usage_error({"--dtype", "fp8"}, Timed::rounds).find("--dtype fp8") != std::string::npos);
  CHECK(usage_error({"--graph"}, Timed::rounds).find("--graph") != std::string::npos);
  CHECK(usage_error({"--rounds", "3"}).find("--rounds") != std::string::npos);
}

TEST_CASE("perf tools: layers have options of their own, and need a GPU", "[perf][options]") {
  const auto error = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--device", "host", "-g", "2"});
    return usage_error(arguments, Timed::layers);
  };
  CHECK(error({}).find("needs a Hopper GPU") != std::string::npos);
  for (const char* model : {"qwen3-30b", "qwen2-moe", "mixtral", "phi-3.5", "deepseek-v3"}) {
    CHECK(error({"--model", model}).find("needs a Hopper GPU") != std::string::npos);  // all else fits together
  }
  CHECK(error({"--model", "mixtral", "--experts", "2", "--topk", "2", "--ways", "sequential,tiles", "--waves", "1",
               "--gemm-sms", "8", "--tile-rows", "64"})
            .find("needs a Hopper GPU") != std::string::npos);
  CHECK(error({"--model", "gpt"}).find("--model") != std::string::npos);
  CHECK(error({"--model", "mixtral", "--waves", "5"}).find("--waves 5: expected 1 to 4") != std::string::npos);
  CHECK(error({"--waves", "33"}).find("--waves 33: expected 1 to 32") != std::string::npos);
  CHECK(error({"--waves", "0"}).find("--waves 0") != std::string::npos);
  CHECK(error({"--intermediate", "64"}).find("--intermediate 64: expected a multiple of 128") != std::string::npos);
  CHECK(error({"--intermediate", "0"}).find("--intermediate 0") != std::string::npos);
  CHECK(error({"--hidden", "128"}).find("--hidden 128: expected a multiple of 256") != std::string::npos);
  CHECK(error({"--tile-rows", "32"}).find("--tile-rows 32: expected 64 or 128") != std::string::npos);
  CHECK(error({"--gemm-sms", "-1"}).find("--gemm-sms -1") != std::string::npos);
  CHECK(error({"--ways", "sideways"}).find("--ways") != std::string::npos);
  CHECK(error({"--mode", "ht"}).find("--mode ht") != std::string::npos);
  CHECK(error({"--dtype", "fp16"}).find("--dtype") != std::string::npos);
  CHECK(usage_error({"--ways", "tiles"}).find("--ways") != std::string::npos);  // of layers only
}

TEST_CASE("perf tools: ranks share GPUs when they are told to", "[perf][options]") {
  Options options = parse({"--device", "host", "-t", "4"});
  CHECK(options.gpus_here == 0);
  CHECK(options.gpu_of(3) == 3);  // nobody asks
  options.gpus_here = 2;
  CHECK(options.gpu_of(1) == 1);
  CHECK_THROWS_WITH(options.gpu_of(3), Catch::Contains("rank 3 of this machine") && Catch::Contains("--share-gpus"));
  options.share_gpus = true;
  CHECK(options.gpu_of(3) == 1);
}

TEST_CASE("perf tools: percentiles are samples", "[perf][measurement]") {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Statistics s = statistics(values);
  CHECK(s.p50 == 50);
  CHECK(s.p99 == 99);
  CHECK(s.min == 1);
  CHECK(s.max == 100);
  CHECK(s.mean == Approx(50.5));
  CHECK(statistics({7}).p99 == 7);
  CHECK(statistics({1, 2, 3}).p99 == 3);
}

TEST_CASE("perf tools: bandwidth is bytes of a rank over time", "[perf][measurement]") {
  Series series;
  series.row_bytes = 1000;
  series.samples.resize(2);
  series.traffic = {800, 1600, 3200};  // of 2 iterations and 4 ranks: 100, 200, 400 rows each
  const Bandwidths rate = bandwidths(series, 4, 10.0);
  CHECK(rate.wire == Approx(10.0));  // 100 kB in 10 us
  CHECK(rate.logical == Approx(20.0));
  CHECK(rate.selection == Approx(40.0));
}
