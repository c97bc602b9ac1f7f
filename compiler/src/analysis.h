// What a loop does with memory, and what is to be done for it: a result that nothing has acted on yet.
#pragma once

#include "plan.h"
#include "slice.h"
#include "summary.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/TargetLibraryInfo.h"

namespace hinterland {

// Bytes: what moves between near and far memory.
inline constexpr int64_t page = 4096;

llvm::StringRef name(Pattern pattern);

// Accesses that advance together, at a fixed distance from one another.
struct Access {
  Pattern pattern = Pattern::Sequential;
  const llvm::SCEV *address = nullptr; // of the lowest byte
  uint64_t bytes = 0;             // from there to the highest
  const llvm::SCEV *end = nullptr; // of a range that a call walks: where it ends; null: `bytes` further
  bool isWalked = false;          // of a range: each iteration walks what is computed ahead as its range
  int64_t step = 0;               // bytes from one iteration to the next; 0: not known at compile time
  llvm::Loop *holder = nullptr;   // the innermost loop that they are in
  llvm::Instruction *at = nullptr;  // a load, a store, or a call
  const llvm::Value *object = nullptr;
  llvm::SmallVector<llvm::LoadInst *, 4> loads; // whose values the address depends on
  llvm::SmallVector<PagedLoad, 2> paged;        // those of them
  unsigned lead = 1;              // distances ahead: what others' addresses depend on arrives before those are computed
  Eviction evict = Eviction::Never;
  bool wanted = false;            // the plan says that it is to leave
  const llvm::SCEV *apart = nullptr; // it is evicted only where this, which does not change in the loop, is not below 0; null: always
  std::string kept;               // why it is not evicted
  bool writes = false;
  bool overwrites = false;        // the loop stores every byte of it: nothing is fetched
  std::string read;               // why it is fetched although it is written
};

// What was not understood.
struct Refusal {
  llvm::Instruction *at;
  std::string why;
};

struct LoopDecision {
  llvm::Loop *loop = nullptr;
  const llvm::SCEV *taken = nullptr; // iterations less one, at most; none for a chain
  bool isLeft = false;
  bool endsEarly = false; // perhaps: where it is left by a way that cannot be counted, the program goes on
  llvm::SmallVector<Access, 8> accesses;
  llvm::SmallVector<Refusal, 4> refusals;
  std::string refused;  // why the loop stays as it is; empty: it is hinted
  bool rewalks = false; // loops inside walk something again in each iteration
  bool steps = false;   // all that it walks goes in steps of less than a page, which prefetchers follow
  bool evictionIsWanted = false; // the plan's word: some of it is to leave
};

// Whether a loop can be left in the middle of an iteration, or by a condition that cannot be counted: a later iteration need not come.
bool isLeft(const llvm::Loop &loop, llvm::ScalarEvolution &evolution);

// Whether a block that a loop leads to is the function's end, without a return, within so many blocks: a check that has failed.
bool isDeadEnd(const llvm::BasicBlock &block, unsigned blocks = 4);

// Why an object is never far, or not worth a hint; empty: neither is known.
std::string near(const llvm::Value *object, const llvm::DataLayout &layout);

// Iterations in a chunk, between which the hints are: of the widest walk as many as travel together. Rows of a nest may make them fewer.
int64_t iterationsPerChunk(const LoopDecision &decision);

// Analyses of a function.
struct FunctionAnalyses {
  llvm::DominatorTree &dominators;
  llvm::LoopInfo &loops;
  llvm::ScalarEvolution &evolution;
  llvm::AAResults &aliases;
  const llvm::TargetLibraryInfo &library;
  llvm::AssumptionCache &assumptions;
  Summaries &summaries;
  const llvm::SmallPtrSetImpl<const llvm::Value *> &own; // objects that the function allocates and no one else sees, as it was before hints; none beside setjmp
};

// What the plan says of a loop: whether it is hinted, and the words on eviction.
struct LoopWish {
  bool fetch = true;
  std::optional<Eviction> evict; // none: what the analysis proves
  bool planned = false;          // a plan names the function
  std::vector<Pattern> patterns; // only these; none: all
};
LoopWish wish(const Plan &plan, const llvm::Loop &loop);

// Asks of each place that the loop has, until one is it: from the function that it was written in, outwards through the calls that were inlined,
// and last the function that it is in.
void findPlace(const llvm::Loop &loop, llvm::function_ref<bool(const llvm::DISubprogram *program, llvm::StringRef linkage, unsigned line)> isIt);

// Whether the plan wants hints in a function of its own name.
bool isPlanned(const Plan &plan, const llvm::Function &function);

LoopDecision decide(llvm::Loop &loop, const LoopWish &wish, const Plan &plan, FunctionAnalyses &analyses);

} // namespace hinterland
