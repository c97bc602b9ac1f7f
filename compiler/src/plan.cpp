// Reads the JSON that `hinterland cc` makes of a plan.
#include "plan.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cstdlib>

using namespace llvm;

namespace hinterland {

static bool fromJSON(const json::Value &value, std::optional<Eviction> &evict, json::Path path) {
  auto word = value.getAsString();
  if (word == "now") evict = Eviction::Now;
  else if (word == "soon") evict = Eviction::Soon;
  else if (word == "never") evict = Eviction::Never;
  else if (!value.getAsNull()) {
    path.report("neither \"now\", \"soon\" nor \"never\"");
    return false;
  }
  return true;
}

// An optional member of type Eviction. `map.mapOptional` would take std::optional for a type of its own.
static bool mapEvict(const json::Value &value, std::optional<Eviction> &evict, json::Path path) {
  const json::Object *object = value.getAsObject();
  const json::Value *member = object ? object->get("evict") : nullptr;
  return !member || fromJSON(*member, evict, path.field("evict"));
}

static bool fromJSON(const json::Value &value, Pattern &pattern, json::Path path) {
  static const std::pair<StringRef, Pattern> words[] = {{"sequential", Pattern::Sequential}, {"strided", Pattern::Strided},
                                                        {"nest", Pattern::Nest}, {"indirect", Pattern::Gather}, {"chain", Pattern::Chain}};
  auto word = value.getAsString();
  for (auto [name, meant] : words)
    if (word == name) return pattern = meant, true;
  path.report("no pattern");
  return false;
}

static bool fromJSON(const json::Value &value, LoopPlan &loop, json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("line", loop.line) && map.mapOptional("fetch", loop.fetch) && mapEvict(value, loop.evict, path);
}

static bool fromJSON(const json::Value &value, FunctionPlan &function, json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("name", function.name) && map.mapOptional("symbol", function.symbol) && map.mapOptional("file", function.file) && map.mapOptional("fetch", function.fetch) &&
         map.mapOptional("patterns", function.patterns) && map.mapOptional("loops", function.loops) && mapEvict(value, function.evict, path);
}

static bool fromJSON(const json::Value &value, SitePlan &site, json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("function", site.function) && map.map("line", site.line) && mapEvict(value, site.evict, path);
}

Expected<Plan> Plan::fromEnvironment() {
  Plan plan;
  const char *name = std::getenv("HINTERLAND_COMPILE_PLAN");
  if (!name || !*name) return plan;
  // A descriptor of `hinterland cc` has no size before it is read.
  auto text = MemoryBuffer::getFileAsStream(name);
  if (!text) return createStringError(text.getError(), "HINTERLAND_COMPILE_PLAN: %s: %s", name, text.getError().message().c_str());
  auto value = json::parse((*text)->getBuffer());
  if (!value) return value.takeError();
  json::Path::Root root("plan");
  json::ObjectMapper map(*value, root);
  std::string digest, bytes;
  if (!map || !map.map("digest", digest) || !map.mapOptional("functions", plan.functions) || !map.mapOptional("sites", plan.sites))
    return root.getError();
  if (digest.size() != 64 || !tryGetFromHex(digest, bytes))
    return createStringError(inconvertibleErrorCode(), "HINTERLAND_COMPILE_PLAN: %s: the digest has not 64 hexadecimal digits", name);
  std::copy(bytes.begin(), bytes.end(), plan.digest.begin());
  plan.given = true;
  return plan;
}

} // namespace hinterland
