// What functions do that loops call, as far as it tells what can be fetched ahead: a call that stays a call is not looked into otherwise.
//
// What may be touched is used for hints alone; whether a call comes back also for loads ahead of it. What it writes, frees or waits for follows
// from LLVM's attributes. A function's summary has those of what it calls in it, but for recursion.
#pragma once

#include "formula.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/PassManager.h"
#include <memory>

namespace hinterland {

// Bytes from an argument on, or around it: from where to where, which its other arguments may tell.
struct Reach {
  unsigned argument;
  Formula begin, end;
  uint64_t bytes; // touched at a time
  bool writes;
};

struct Summary {
  llvm::SmallVector<Reach, 2> reaches; // none of an argument of whose memory more is touched than can be told
  bool comesBack = false;              // each call returns, sooner or later
};

class Summaries {
public:
  Summaries(llvm::Module &module, llvm::FunctionAnalysisManager &manager);

  // As the function was when it was asked for first.
  const Summary &of(llvm::Function &function);
  // Whether what is behind an instruction is executed after it: it does not end, throw or stop.
  bool goesOn(const llvm::Instruction &instruction);

private:
  llvm::FunctionAnalysisManager &manager_;
  llvm::SmallPtrSet<const llvm::Function *, 8> recursive_;
  llvm::DenseMap<const llvm::Function *, std::unique_ptr<Summary>> made_;
  unsigned depth_ = 0; // of calls that are looked into
};

} // namespace hinterland
