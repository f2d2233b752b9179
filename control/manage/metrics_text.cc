#include "control/manage/metrics_text.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "control/device/call_times.h"
#include "control/manage/metric_families.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;
using Labels = std::vector<std::pair<std::string, std::string>>;

constexpr double kSecondsPerNs = 1e-9;

// In quotation marks.
std::string Quote(const std::string& text) {
  std::string out = "\"";
  for (const char each : text) {
    if (each == '\\' || each == '"') out += '\\';
    out += each == '\n' ? "\\n" : std::string(1, each);
  }
  return out + "\"";
}

// Bytes that are no UTF-8 become U+FFFD, as in JSON.
std::string Utf8(const Json& value) {
  if (!value.is_string()) return value.dump();
  const std::string whole = Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(whole).get<std::string>();
}

// "3", "0.25"; booleans are 0 and 1.
std::string Number(const Json& value, double scale) {
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (scale == 1 && value.is_number_integer()) return value.dump();
  return absl::StrFormat("%.15g", value.get<double>() * scale);
}

// The labels that tell the items of a list apart.
Labels LabelsOf(const std::string& list, const Json& item) {
  struct Key {
    std::string_view list;
    const char* member;
    const char* label;
  };
  constexpr Key kKeys[] = {
      {"devices", "name", "device"}, {"ports", "device", "device"},
      {"lcores", "lcore", "lcore"},  {"programs", "program", "program"},
      {"programs", "uid", "uid"},    {"users", "uid", "uid"},
      {"calls", "call", "call"},
  };
  Labels labels;
  for (const Key& key : kKeys) {
    if (key.list == list) labels.emplace_back(key.label, Utf8(item.value(key.member, Json(""))));
  }
  return labels;
}

class Writer {
 public:
  explicit Writer(MetricsFormat format) : open_(format == MetricsFormat::kOpenMetrics) {}

  void Begin(const MetricFamily& family) {
    constexpr const char* kTypes[] = {"counter", "gauge", "info", "histogram"};
    name_ = "roci_" + family.name;
    suffix_ = family.type == MetricType::kCounter ? "_total"
              : family.type == MetricType::kInfo  ? "_info"
                                                  : "";
    // The older format knows no families: it describes samples, and has no type "info".
    const std::string described = open_ ? name_ : name_ + suffix_;
    const bool is_plain_info = !open_ && family.type == MetricType::kInfo;
    const char* type = is_plain_info ? "gauge" : kTypes[static_cast<size_t>(family.type)];
    absl::StrAppend(&text_, "# HELP ", described, " ", family.help, "\n# TYPE ", described, " ",
                    type, "\n");
    for (const char* unit : {"bytes", "seconds"}) {
      if (open_ && absl::EndsWith(name_, absl::StrCat("_", unit))) {
        absl::StrAppend(&text_, "# UNIT ", name_, " ", unit, "\n");
      }
    }
  }

  void Sample(const Labels& labels, const std::string& value) { SampleOf(suffix_, labels, value); }
  // `suffix` is that of a histogram's part.
  void SampleOf(const std::string& suffix, const Labels& labels, const std::string& value) {
    absl::StrAppend(&text_, name_, suffix);
    for (size_t i = 0; i < labels.size(); ++i) {
      absl::StrAppend(&text_, i == 0 ? "{" : ",", labels[i].first, "=", Quote(labels[i].second));
    }
    absl::StrAppend(&text_, labels.empty() ? " " : "} ", value, "\n");
  }

  std::string End() { return std::move(text_) + (open_ ? "# EOF\n" : ""); }

 private:
  const bool open_;
  std::string name_, suffix_, text_;
};

// All texts of the item are labels.
void WriteInfo(const Json& item, Writer& out) {
  Labels labels;
  for (const auto& [key, value] : item.items()) {
    if (value.is_string()) labels.emplace_back(key == "name" ? "device" : key, Utf8(value));
  }
  out.Sample(labels, "1");
}

void WriteHistogram(const Labels& labels, const Json& item, Writer& out) {
  const Json& buckets = item.at("buckets");
  uint64_t sum = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    sum += buckets[i].get<uint64_t>();
    Labels with_bound = labels;
    const bool is_last = i == CallTimes::kBoundsNs.size();
    with_bound.emplace_back(
        "le", is_last ? "+Inf"
                      : absl::StrFormat(
                            "%g", static_cast<double>(CallTimes::kBoundsNs[i]) * kSecondsPerNs));
    out.SampleOf("_bucket", with_bound, absl::StrCat(sum));
  }
  out.SampleOf("_count", labels, absl::StrCat(sum));
  out.SampleOf("_sum", labels, Number(item.at("sum_ns"), kSecondsPerNs));
}

void WriteItem(const MetricFamily& family, const Json& item, Writer& out) {
  if (family.type == MetricType::kInfo) return WriteInfo(item, out);
  Labels labels = LabelsOf(family.list, item);
  if (family.type == MetricType::kHistogram) return WriteHistogram(labels, item, out);
  const Json::json_pointer pointer(family.member);
  if (!item.contains(pointer)) return;
  const Json& value = item.at(pointer);
  if (family.label.empty()) {
    if (value.is_number() || value.is_boolean()) out.Sample(labels, Number(value, family.scale));
    return;
  }
  labels.emplace_back(family.label, "");
  for (const auto& [key, each] : value.items()) {
    labels.back().second = key;
    out.Sample(labels, Number(each, family.scale));
  }
}

}  // namespace

std::string MetricsText(const Json& snapshot, MetricsFormat format) {
  Writer out(format);
  for (const MetricFamily& family : MetricFamilies()) {
    out.Begin(family);
    const auto items = snapshot.find(family.list);
    if (items == snapshot.end()) continue;
    for (const Json& item : *items) WriteItem(family, item, out);
  }
  return out.End();
}

}  // namespace roci::control
