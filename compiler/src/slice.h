// The value that an expression of a loop has in an iteration that has not begun.
//
// Scalar evolution gives what is affine; what it does not see through (loaded indices, hashes) is a slice of the loop's own instructions,
// evaluated again for another iteration. `check` decides whether that is possible and safe, `lower` does it: the two walk the same way. A phi of
// the loop's header is what the iteration before computed, where that is still ahead, too; in the iteration that is about to begin it is known.
//
// What is evaluated is an address to fetch, so a wrong value does no harm, but a load could fault. So a load is part of a slice only where the
// program itself will execute it, in that iteration or in the one before it: its block is in every iteration's way, nothing in the loop can end,
// throw, not return or wait for what another thread writes (by volatile and atomic accesses, fences, calls that may have some), and its own
// address depends on loaded values only where nothing in the loop can write those. The same holds for what tells how often a loop inside runs, and whether it does, where loads of
// that loop are executed ahead: with an older value they would be others than the program's.
//
// Where the loop can be left in the middle of an iteration, a later one need not come. What may be loaded ahead is then what is known to be there
// for all iterations, and else what is on the page that the last iteration has loaded from, as long as nothing in the loop may release it.
#pragma once

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/AliasAnalysis.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"
#include <string>

namespace hinterland {

struct FunctionAnalyses;

// An index that is loaded ahead on the page alone that the loop has come to.
struct PagedLoad {
  const llvm::SCEVAddRecExpr *address;
  int64_t step; // bytes from one iteration to the next; not 0
  uint64_t bytes;
};

// What a check found.
struct Slice {
  llvm::SmallVector<llvm::LoadInst *, 4> loads; // which are executed ahead
  llvm::SmallVector<PagedLoad, 2> paged;        // those of them
  bool advances = false;                        // depends on the loop's iteration
  bool inner = false;                           // depends on an inner loop's iteration
  std::string refused;                          // why it cannot be evaluated; empty: it can

  // What is evaluated beside it.
  void add(const Slice &other) {
    loads.append(other.loads);
    paged.append(other.paged);
    advances |= other.advances;
    inner |= other.inner;
    if (refused.empty()) refused = other.refused;
  }
};

class SliceCheck {
public:
  SliceCheck(llvm::Loop &loop, FunctionAnalyses &analyses);

  // Whether `address` can be evaluated when the iterations of the loop and of `inside` (loops inside it) are given. Loads are allowed in the loop
  // itself and in `reader`. `Use::Control`: the value decides which loads are executed, so it must be the program's own.
  enum class Use { Address, Control };
  Slice check(const llvm::SCEV *address, llvm::ArrayRef<const llvm::Loop *> inside, const llvm::Loop *reader, Use use = Use::Address) const;
  // Whether the address can be evaluated that loops inside begin with.
  Slice checkEntry(const llvm::SCEV *address) const;
  // The same for a condition under which loads are executed.
  Slice check(llvm::Value *condition) const;

  // Why loads ahead of their time are not safe anywhere in the loop; empty: they are.
  const std::string &uncertain() const { return uncertain_; }

private:
  struct Walk;
  void expression(const llvm::SCEV *expression, Walk &walk) const;
  void value(llvm::Value *value, Walk &walk) const;
  void load(llvm::LoadInst &load, Walk &walk) const;
  void leftLoad(llvm::LoadInst &load, Walk &walk) const;
  bool written(llvm::LoadInst &load) const;
  llvm::BasicBlock *entryOf(const llvm::PHINode &phi) const;

  llvm::Loop &loop_;
  llvm::ScalarEvolution &evolution_;
  llvm::DominatorTree &dominators_;
  llvm::LoopInfo &loops_;
  llvm::AAResults &aliases_;
  llvm::AssumptionCache &assumptions_;
  std::string uncertain_;
  bool isLeft_;
  bool mayRelease_ = false; // memory that it has read
};

// Writes code that evaluates slices.
class SliceLowering {
public:
  // What the phis of the loop's header have in the iteration that is about to begin.
  using Current = llvm::SmallDenseMap<const llvm::PHINode *, llvm::Value *, 4>;
  // Iterations by loop; each value is an i64. A loop inside that has none is about to begin. `current`: the loop's own iteration is the one
  // about to begin, and no load of the iteration before, which has been or never is, is executed; null: that iteration is still ahead.
  struct Iterations : llvm::SmallDenseMap<const llvm::Loop *, llvm::Value *, 4> {
    using SmallDenseMap::SmallDenseMap;
    const Current *current = nullptr;
  };

  // What does not change in the loop is computed before `invariants`, which is ahead of the loop and of all code that is written.
  SliceLowering(llvm::Loop &loop, llvm::ScalarEvolution &evolution, llvm::LoopInfo &loops, llvm::Instruction &invariants);

  llvm::Value *lower(const llvm::SCEV *expression, const Iterations &at, llvm::IRBuilderBase &builder);
  llvm::Value *lower(llvm::Value *value, const Iterations &at, llvm::IRBuilderBase &builder);

private:
  llvm::Value *compute(const llvm::SCEV *expression, const Iterations &at, llvm::IRBuilderBase &builder);

  llvm::Loop &loop_;
  llvm::ScalarEvolution &evolution_;
  llvm::LoopInfo &loops_;
  llvm::Instruction &invariants_;
  llvm::SCEVExpander expander_;
};

} // namespace hinterland
