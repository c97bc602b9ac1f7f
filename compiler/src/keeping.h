// What is kept while a loop runs: memory that it comes to again, of which the plan says that it leaves last (Mira §4.4, "dont-evict").
//
//     before ──▶ keep ──▶ the loop, both versions ──▶ release, behind each of its ends
//
// The pages are kept from the entry of the outermost loop that comes to them again, until it is left. So each way out of it is to be known: nothing
// in the loop may end, throw or jump elsewhere. What throws behind one of its ends has released before.
#pragma once

#include "analysis.h"
#include "interface.h"
#include "llvm/ADT/MapVector.h"

namespace hinterland {

// Of an object, what is kept for a loop: bytes from one distance to another.
struct Kept {
  const llvm::SCEV *base;
  const llvm::SCEV *begin, *end;
  llvm::Instruction *at;     // an access
  const llvm::Value *object; // of it
  bool isScattered;          // it is accessed in an order that is not known; else each iteration walks it again
};

// What the plan wants kept and is not.
struct NotKept {
  llvm::Instruction *at;
  const llvm::Value *object;
  std::string why;
};

struct KeepDecision {
  llvm::MapVector<llvm::Loop *, llvm::SmallVector<Kept, 2>> loops;
  llvm::SmallVector<NotKept, 4> refusals;
};

KeepDecision decideKeeping(llvm::Function &function, const Plan &plan, FunctionAnalyses &analyses);

// Changes the function; its analyses are stale afterwards.
void keep(const KeepDecision &decision, Interface &interface, FunctionAnalyses &analyses);

} // namespace hinterland
