// What functions do that loops call, as far as it tells what can be fetched ahead: a call that stays a call is not looked into otherwise.
//
// What may be touched is used for hints alone; whether a call comes back also for loads ahead of it. What it writes, frees or waits for follows
// from LLVM's attributes.
#pragma once

#include "llvm/ADT/DenseMap.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/PassManager.h"

namespace hinterland {

// Bytes around what an argument points to.
struct Reach {
  unsigned argument;
  int64_t begin, end;
  bool writes;
};

struct Summary {
  llvm::SmallVector<Reach, 2> reaches; // none of an argument of whose memory more is touched than can be told
  bool comesBack = false;              // each call returns, sooner or later
};

class Summaries {
public:
  explicit Summaries(llvm::FunctionAnalysisManager &manager) : manager_(manager) {}

  const Summary &of(llvm::Function &function);

private:
  llvm::FunctionAnalysisManager &manager_;
  llvm::DenseMap<const llvm::Function *, Summary> made_;
};

} // namespace hinterland
