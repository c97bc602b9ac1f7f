// Reads the JSON that `hinterland cc` makes of a plan.
#include "plan.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Demangle/Demangle.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <cstdlib>

using namespace llvm;

namespace hinterland {

static bool fromJSON(const json::Value &value, std::optional<Eviction> &evict, json::Path path) {
  auto word = value.getAsString();
  if (word == "now") evict = Eviction::Now;
  else if (word == "soon") evict = Eviction::Soon;
  else if (word == "never") evict = Eviction::Never;
  else if (word == "last") evict = Eviction::Last;
  else if (!value.getAsNull()) {
    path.report("neither \"now\", \"soon\", \"never\" nor \"last\"");
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
  return map && map.map("line", loop.line) && map.map("fetch", loop.fetch) && mapEvict(value, loop.evict, path);
}

static bool fromJSON(const json::Value &value, FunctionPlan &function, json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("name", function.name) && map.mapOptional("symbol", function.symbol) && map.mapOptional("file", function.file) && map.mapOptional("fetch", function.fetch) &&
         map.mapOptional("patterns", function.patterns) && map.mapOptional("loops", function.loops) && mapEvict(value, function.evict, path);
}

static bool fromJSON(const json::Value &value, SitePlan &site, json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("function", site.function) && map.mapOptional("symbol", site.symbol) && map.map("line", site.line) &&
         map.mapOptional("column", site.column) && mapEvict(value, site.evict, path);
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

// Whether two demangled names are the same: some demanglers write a space between two closing brackets.
static bool isSame(StringRef one, StringRef other) {
  for (;;) {
    if (one.starts_with(" >")) one = one.drop_front();
    if (other.starts_with(" >")) other = other.drop_front();
    if (one.empty() || other.empty()) return one.empty() && other.empty();
    if (one.front() != other.front()) return false;
    one = one.drop_front();
    other = other.drop_front();
  }
}

// A function's name with what it is in, without its parameters and its result.
static std::string withoutParameters(StringRef linkage, StringRef demangled) {
  ItaniumPartialDemangler parts; // of the text, which it keeps no copy of
  std::string mangled = linkage.str();
  if (!parts.partialDemangle(mangled.c_str()) && parts.isFunction()) {
    size_t room = 0;
    char *name = parts.getFunctionName(nullptr, &room);
    std::string result = name ? name : "";
    std::free(name);
    return result;
  }
  // Rust's older names end with a hash, which changes from build to build.
  StringRef plain = demangled.take_until([](char c) { return c == '('; });
  auto [name, hash] = plain.rsplit("::h");
  return (hash.size() == 16 && all_of(hash, isHexDigit) ? name : plain).str();
}

struct Demangled {
  std::string whole, withoutParameters;
};

// Each name is demangled once by each thread: many instructions have the same, and a link may run backends side by side.
static const Demangled &demangled(StringRef linkage) {
  static thread_local StringMap<Demangled> known;
  auto [entry, isNew] = known.try_emplace(linkage);
  Demangled &names = entry->second;
  if (isNew) {
    names.whole = demangle(linkage);
    names.withoutParameters = withoutParameters(linkage, names.whole);
  }
  return names;
}

static bool isCalled(StringRef name, StringRef symbol, const DISubprogram *program, StringRef linkage) {
  if (name == linkage || (!symbol.empty() && symbol == linkage) || (program && (name == program->getName() || name == program->getLinkageName()))) return true;
  const Demangled &names = demangled(linkage);
  return isSame(name, names.whole) || isSame(name, names.withoutParameters);
}

// Whether a source file's path ends with those parts of a path.
static bool liesIn(const DISubprogram *program, StringRef file) {
  if (file.empty() || !program) return true;
  SmallString<128> path(program->getFilename()), wanted(file);
  if (sys::path::is_relative(path)) {
    path = program->getDirectory();
    sys::path::append(path, program->getFilename());
  }
  sys::path::remove_dots(path, /*remove_dot_dot=*/true);
  sys::path::remove_dots(wanted, true);
  StringRef end = wanted;
  while (end.consume_front("../")) {}
  return path == end || (StringRef(path).ends_with(end) && (end.starts_with("/") || StringRef(path).drop_back(end.size()).ends_with("/")));
}

bool names(const FunctionPlan &planned, const DISubprogram *program, StringRef linkage) {
  return isCalled(planned.name, planned.symbol, program, linkage) && liesIn(program, planned.file);
}

const FunctionPlan *planOf(const Plan &plan, const DISubprogram *program, StringRef linkage) {
  const FunctionPlan *found = nullptr;
  unsigned rank = 0;
  for (const FunctionPlan &planned : plan.functions) {
    if (!names(planned, program, linkage)) continue;
    // The symbol is one function's; a symbol that is another's, as of a sibling with other parameters or of another build, is the least.
    unsigned own = planned.symbol == linkage ? 4 : !planned.symbol.empty() ? 1 : !planned.file.empty() ? 3 : 2;
    if (own <= rank) continue;
    found = &planned;
    rank = own;
  }
  return found;
}

bool names(const SitePlan &planned, const DILocation *place, const Function &function) {
  const DISubprogram *program = place->getScope()->getSubprogram();
  if (planned.line != 0 && planned.line != place->getLine()) return false;
  if (planned.column != 0 && planned.column != place->getColumn()) return false;
  StringRef linkage = program->getLinkageName();
  // What was not inlined has the name of the code that it is in.
  if (linkage.empty()) linkage = place->getInlinedAt() ? program->getName() : function.getName();
  return isCalled(planned.function, planned.symbol, program, linkage);
}

} // namespace hinterland
