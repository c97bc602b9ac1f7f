#include "summary.h"
#include "bounds.h"
#include "llvm/ADT/SCCIterator.h"
#include "llvm/Analysis/CFG.h"
#include "llvm/Analysis/CallGraph.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"

using namespace llvm;

namespace hinterland {

// Of an argument so many bytes, at most, to each side of where it points are taken as one piece, whatever is touched of them.
static constexpr int64_t pieceMax = 4096;
// Of a function as many pieces that its arguments bound; a caller makes one of neighbours.
static constexpr size_t reachesMax = 32;
// Calls inside calls that are looked into.
static constexpr unsigned depthMax = 32;

namespace {

// What a function touches of its arguments' memory.
class Touched {
public:
  Touched(Function &function, ScalarEvolution &evolution) : function_(function), evolution_(evolution), bounds_(evolution) {}

  // Bytes from one address to another, which are `bytes` at a time.
  void add(const SCEV *from, const SCEV *to, uint64_t bytes, bool writes);
  void addUnbounded(const SCEV *address) {
    if (const Argument *argument = argumentOf(address)) further_.insert(argument);
  }
  SmallVector<Reach, 2> take() {
    erase_if(reaches_, [&](const Reach &reach) { return further_.contains(function_.getArg(reach.argument)); });
    return std::move(reaches_);
  }

private:
  const Argument *argumentOf(const SCEV *address) const {
    auto *base = dyn_cast<SCEVUnknown>(evolution_.getPointerBase(address));
    auto *argument = base ? dyn_cast<Argument>(base->getValue()) : nullptr;
    return argument && !argument->hasPassPointeeByValueCopyAttr() ? argument : nullptr;
  }

  Function &function_;
  ScalarEvolution &evolution_;
  Bounds bounds_;
  SmallVector<Reach, 2> reaches_;
  SmallPtrSet<const Argument *, 4> further_; // of which more is touched than can be told
};

void Touched::add(const SCEV *from, const SCEV *to, uint64_t bytes, bool writes) {
  const Argument *argument = argumentOf(from);
  if (!argument) return;
  const SCEV *begin = evolution_.removePointerBase(from), *end = evolution_.removePointerBase(to);
  APInt low = evolution_.getSignedRange(begin).getSignedMin(), high = evolution_.getSignedRange(end).getSignedMax();
  if (low.sge(-pieceMax) && high.sle(pieceMax + int64_t(bytes))) {
    auto *known = find_if(reaches_, [&](const Reach &other) { return other.argument == argument->getArgNo() && other.begin.constant() && other.end.constant(); });
    if (known == reaches_.end()) return reaches_.push_back({argument->getArgNo(), Formula(low), Formula(high), bytes, writes});
    if (low.slt(*known->begin.constant())) known->begin = Formula(low);
    if (high.sgt(*known->end.constant())) known->end = Formula(high);
    known->writes |= writes;
    return;
  }
  const SCEV *least = bounds_.of(begin, false), *greatest = bounds_.of(end, true);
  auto first = least ? Formula::of(least) : std::nullopt, last = greatest ? Formula::of(greatest) : std::nullopt;
  if (!first || !last) return addUnbounded(from);
  auto *known = find_if(reaches_, [&](const Reach &other) { return other.argument == argument->getArgNo() && other.begin == *first && other.end == *last; });
  if (known != reaches_.end()) known->writes |= writes;
  else if (reaches_.size() < reachesMax) reaches_.push_back({argument->getArgNo(), std::move(*first), std::move(*last), bytes, writes});
  else addUnbounded(from);
}

} // namespace

static SmallVector<Reach, 2> reachesOf(Function &function, ScalarEvolution &evolution, Summaries &summaries) {
  Touched touched(function, evolution);
  const DataLayout &layout = function.getDataLayout();
  auto behind = [&](const SCEV *address, const SCEV *bytes) { return bytes ? evolution.getAddExpr(address, bytes) : nullptr; };
  for (Instruction &instruction : instructions(function)) {
    if (Value *pointer = getLoadStorePointerOperand(&instruction)) {
      const SCEV *address = evolution.getSCEV(pointer);
      TypeSize bytes = layout.getTypeStoreSize(getLoadStoreType(&instruction));
      if (bytes.isScalable()) touched.addUnbounded(address);
      else touched.add(address, behind(address, evolution.getConstant(layout.getIndexType(pointer->getType()), bytes.getFixedValue())), bytes.getFixedValue(), isa<StoreInst>(instruction));
      continue;
    }
    auto *call = dyn_cast<CallBase>(&instruction);
    Function *called = call ? call->getCalledFunction() : nullptr;
    if (!called) continue;
    for (const Reach &reach : summaries.of(*called).reaches) {
      const SCEV *address = evolution.getSCEV(call->getArgOperand(reach.argument));
      const SCEV *from = behind(address, reach.begin.at(*call, evolution)), *to = behind(address, reach.end.at(*call, evolution));
      if (from && to) touched.add(from, to, reach.bytes, reach.writes);
      else touched.addUnbounded(address);
    }
  }
  return touched.take();
}

// Whether each loop ends, and nothing else keeps a call from returning. LLVM's own attribute is for functions without loops.
static bool comesBack(Function &function, const LoopInfo &loops, ScalarEvolution &evolution, Summaries &summaries) {
  if (!function.doesNotThrow()) return false;
  for (Instruction &instruction : instructions(function))
    if (!(isa<ReturnInst>(instruction) || summaries.goesOn(instruction)) || instruction.isVolatile() || instruction.isAtomic()) return false;
  for (const Loop *loop : loops.getLoopsInPreorder())
    if (isa<SCEVCouldNotCompute>(evolution.getConstantMaxBackedgeTakenCount(loop)) && !isMustProgress(loop)) return false;
  SmallVector<std::pair<const BasicBlock *, const BasicBlock *>, 4> back;
  FindFunctionBackedges(function, back);
  return all_of(back, [&](auto edge) {
    const Loop *loop = loops.getLoopFor(edge.second);
    return loop && loop->getHeader() == edge.second && loop->contains(edge.first);
  });
}

Summaries::Summaries(Module &module, FunctionAnalysisManager &manager) : manager_(manager) {
  CallGraph graph(module);
  for (auto component = scc_begin(&graph); !component.isAtEnd(); ++component)
    if (component.hasCycle())
      for (const CallGraphNode *node : *component) recursive_.insert(node->getFunction());
}

const Summary &Summaries::of(Function &function) {
  static const Summary none;
  if (function.isDeclaration() || function.isInterposable() || recursive_.contains(&function)) return none;
  if (auto known = made_.find(&function); known != made_.end()) return *known->second;
  if (depth_ == depthMax) return none;
  depth_++;
  Summary &summary = *(made_[&function] = std::make_unique<Summary>());
  auto &evolution = manager_.getResult<ScalarEvolutionAnalysis>(function);
  // Another file's definition of an inline function touches the same, but may be compiled to end otherwise where its behaviour is undefined.
  bool isThis = function.hasExactDefinition();
  summary.reaches = reachesOf(function, evolution, *this);
  summary.comesBack = isThis && comesBack(function, manager_.getResult<LoopAnalysis>(function), evolution, *this);
  depth_--;
  return summary;
}

bool Summaries::goesOn(const Instruction &instruction) {
  if (isGuaranteedToTransferExecutionToSuccessor(&instruction)) return true;
  auto *call = dyn_cast<CallBase>(&instruction);
  Function *called = call ? call->getCalledFunction() : nullptr;
  return called && of(*called).comesBack;
}

} // namespace hinterland
