// What a plan says of the functions, loops and allocation sites of a program (Mira §4.1).
//
// People write plans as TOML; `hinterland cc` checks them and hands them on as JSON, in a file that HINTERLAND_COMPILE_PLAN names.
// Without a plan the defaults are conservative: loops that follow indices or rows are hinted, and only what a function owns is evicted.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/Function.h"
#include "llvm/Support/Error.h"
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hinterland {

// When pages leave after their last use: at once, as the next victims, or not before the policy names them; or, of what a loop uses again, after all
// others, which is to say not while the loop runs ("dont-evict", Mira §4.4).
enum class Eviction { Never, Soon, Now, Last };

// How addresses follow one another.
enum class Pattern {
  Sequential, // one element after the other
  Strided,    // one step of less than a page
  Nest,       // a range for each iteration, walked by loops inside
  Gather,     // each iteration has addresses of its own: loaded indices, hashes, steps of a page and more
  Chain,      // the next element's address is in this one
};

struct LoopPlan {
  unsigned line = 0;
  std::optional<bool> fetch; // none: as for its function, both
  std::optional<Eviction> evict;
};

struct FunctionPlan {
  std::string name;   // mangled or demangled; a demangled name may go without its parameters
  std::string symbol; // mangled; empty: not known. Either name will do
  std::string file; // the end of the path; empty: any
  bool fetch = true;
  std::optional<Eviction> evict;
  std::vector<Pattern> patterns; // only these; none: all
  std::vector<LoopPlan> loops;
};

// Where memory is allocated.
struct SitePlan {
  std::string function; // as the name of a function plan
  std::string symbol;   // as there
  unsigned line = 0;    // of the call; 0: not known, and any will do
  unsigned column = 0;  // there; 0: any will do
  std::optional<Eviction> evict;
};

struct Plan {
  bool given = false;
  std::array<uint8_t, 32> digest{}; // SHA-256 of the plan's text; zeros where there is none
  std::vector<FunctionPlan> functions;
  std::vector<SitePlan> sites;

  // The file that the environment names; no plan where it names none.
  static llvm::Expected<Plan> fromEnvironment();
};

// Whether the plan means a function; `linkage`: its mangled name, or what is known of it.
bool names(const FunctionPlan &planned, const llvm::DISubprogram *program, llvm::StringRef linkage);

// What the plan says of a function; null: nothing. Of several that mean it, one whose symbol says so, else one whose file does.
const FunctionPlan *planOf(const Plan &plan, const llvm::DISubprogram *program, llvm::StringRef linkage);

// Whether the plan means an allocation at a place; `function`: whose code that is.
bool names(const SitePlan &planned, const llvm::DILocation *place, const llvm::Function &function);

} // namespace hinterland
