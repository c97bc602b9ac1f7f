#include "summary.h"
#include "llvm/Analysis/CFG.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"

using namespace llvm;

namespace hinterland {

// Of an argument so many bytes, at most, to each side of where it points: more is walked by a loop, which may have hints of its own.
static constexpr int64_t reachMax = 4096;

static SmallVector<Reach, 2> reachesOf(Function &function, ScalarEvolution &evolution) {
  SmallVector<Reach, 2> reaches;
  SmallPtrSet<const Argument *, 4> further; // of which more is touched
  const DataLayout &layout = function.getDataLayout();
  for (Instruction &instruction : instructions(function)) {
    Value *pointer = getLoadStorePointerOperand(&instruction);
    if (!pointer) continue;
    const SCEV *address = evolution.getSCEV(pointer);
    auto *base = dyn_cast<SCEVUnknown>(evolution.getPointerBase(address));
    auto *argument = base ? dyn_cast<Argument>(base->getValue()) : nullptr;
    if (!argument || argument->hasPassPointeeByValueCopyAttr()) continue;
    ConstantRange offsets = evolution.getSignedRange(evolution.removePointerBase(address));
    TypeSize bytes = layout.getTypeStoreSize(getLoadStoreType(&instruction));
    if (bytes.isScalable() || offsets.getSignedMin().slt(-reachMax) || offsets.getSignedMax().sgt(reachMax)) {
      further.insert(argument);
      continue;
    }
    Reach reach{argument->getArgNo(), offsets.getSignedMin().getSExtValue(), offsets.getSignedMax().getSExtValue() + int64_t(bytes.getFixedValue()),
                isa<StoreInst>(instruction)};
    auto *known = find_if(reaches, [&](const Reach &other) { return other.argument == reach.argument; });
    if (known == reaches.end()) reaches.push_back(reach);
    else *known = {reach.argument, std::min(known->begin, reach.begin), std::max(known->end, reach.end), known->writes || reach.writes};
  }
  erase_if(reaches, [&](const Reach &reach) { return further.contains(function.getArg(reach.argument)); });
  return reaches;
}

// Whether each loop ends, and nothing else keeps a call from returning. LLVM's own attribute is for functions without loops.
static bool comesBack(Function &function, const LoopInfo &loops, ScalarEvolution &evolution) {
  if (!function.doesNotThrow()) return false;
  for (Instruction &instruction : instructions(function)) {
    bool goesOn = isa<ReturnInst>(instruction) || isGuaranteedToTransferExecutionToSuccessor(&instruction);
    if (!goesOn || instruction.isVolatile() || instruction.isAtomic()) return false;
  }
  for (const Loop *loop : loops.getLoopsInPreorder())
    if (isa<SCEVCouldNotCompute>(evolution.getConstantMaxBackedgeTakenCount(loop)) && !isMustProgress(loop)) return false;
  SmallVector<std::pair<const BasicBlock *, const BasicBlock *>, 4> back;
  FindFunctionBackedges(function, back);
  return all_of(back, [&](auto edge) {
    const Loop *loop = loops.getLoopFor(edge.second);
    return loop && loop->getHeader() == edge.second && loop->contains(edge.first);
  });
}

const Summary &Summaries::of(Function &function) {
  auto [made, isNew] = made_.try_emplace(&function);
  if (!isNew || function.isDeclaration() || function.isInterposable()) return made->second;
  auto &evolution = manager_.getResult<ScalarEvolutionAnalysis>(function);
  // Another file's definition of an inline function touches the same, but may be compiled to end otherwise where its behaviour is undefined.
  bool isThis = function.hasExactDefinition();
  made->second = {reachesOf(function, evolution), isThis && comesBack(function, manager_.getResult<LoopAnalysis>(function), evolution)};
  return made->second;
}

} // namespace hinterland
