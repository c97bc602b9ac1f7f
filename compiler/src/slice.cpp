#include "slice.h"
#include "aliases.h"
#include "analysis.h"
#include "llvm/Analysis/Loads.h"
#include "llvm/Analysis/MemoryLocation.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace hinterland {

// Instructions and operations of one slice, with what several operands share counted for each; more would cost more than a fetch saves, and
// shared operands of shared operands would double with each level.
static constexpr unsigned operationsMax = 128;
// Bytes from one index to the next where indices are read ahead on a page: fewer of them than 128 on one are not worth it.
static constexpr int64_t pagedStepMax = 32;

struct SliceCheck::Walk {
  Slice slice;
  ArrayRef<const Loop *> inside;
  const Loop *reader;
  bool entries = false;   // of loops inside, what they begin with
  bool previous = false;  // the values of the iteration before
  bool exact = false;     // leads to a load of the slice: a value that the loop has since written is none
  bool control = false;   // decides how often loads are executed
  unsigned operations = 0;

  void refuse(const Twine &why) {
    if (slice.refused.empty()) slice.refused = why.str();
  }
  // Whether the walk ends here: it was refused, or has gone on for too long.
  bool ends() {
    if (slice.refused.empty() && ++operations > operationsMax) refuse("its computation is too long");
    return !slice.refused.empty();
  }
};

// Whether an instruction may be how the loop waits for another thread.
static bool mayWait(const Instruction &instruction, const TargetLibraryInfo &library) {
  if (instruction.isVolatile() || isa<FenceInst>(instruction)) return true;
  if (auto *load = dyn_cast<LoadInst>(&instruction)) return !load->isUnordered();
  if (auto *store = dyn_cast<StoreInst>(&instruction)) return !store->isUnordered();
  auto *call = dyn_cast<CallBase>(&instruction);
  if (!call) return instruction.isAtomic();
  LibFunc known;
  return call->mayWriteToMemory() && !call->hasFnAttr(Attribute::NoSync) && !isa<IntrinsicInst>(call) && !library.getLibFunc(*call, known);
}

SliceCheck::SliceCheck(Loop &loop, FunctionAnalyses &analyses)
    : loop_(loop), evolution_(analyses.evolution), dominators_(analyses.dominators), loops_(analyses.loops), aliases_(analyses.aliases),
      assumptions_(analyses.assumptions), isLeft_(isLeft(loop, analyses.evolution)) {
  // A loop that can be counted ends; so does one in which nothing can be seen from outside (C++ [intro.progress], C11 6.8.5).
  for (Loop *inner : loop.getLoopsInPreorder())
    if (inner != &loop && isa<SCEVCouldNotCompute>(evolution_.getBackedgeTakenCount(inner)) && !isMustProgress(inner))
      uncertain_ = "a loop inside may not end, so a later iteration may never come";
  for (BasicBlock *block : loop.blocks())
    for (Instruction &instruction : *block) {
      // No alias tells what another thread writes before a later iteration goes on.
      if (mayWait(instruction, analyses.library))
        uncertain_ = "it may wait for another thread, whose writes come before a later iteration";
      if (!analyses.summaries.goesOn(instruction)) uncertain_ = "a call may not return, so a later iteration may never come";
      auto *call = dyn_cast<CallBase>(&instruction);
      mayRelease_ |= call && !isa<IntrinsicInst>(call) && call->mayWriteToMemory() && !call->hasFnAttr(Attribute::NoFree);
    }
}

// The block ahead of a loop inside, of which this is a phi of the header.
BasicBlock *SliceCheck::entryOf(const PHINode &phi) const {
  const Loop *inside = loops_.getLoopFor(phi.getParent());
  return inside != &loop_ && inside->getHeader() == phi.getParent() ? inside->getLoopPreheader() : nullptr;
}

Slice SliceCheck::check(const SCEV *address, ArrayRef<const Loop *> inside, const Loop *reader, Use use) const {
  Walk walk{{}, inside, reader};
  walk.exact = walk.control = use == Use::Control;
  expression(address, walk);
  return walk.slice;
}

Slice SliceCheck::checkEntry(const SCEV *address) const {
  Walk walk{{}, {}, nullptr, /*entries=*/true};
  expression(address, walk);
  return walk.slice;
}

Slice SliceCheck::check(Value *condition) const {
  Walk walk{{}, {}, nullptr};
  walk.exact = walk.control = true;
  value(condition, walk);
  return walk.slice;
}

void SliceCheck::expression(const SCEV *expression, Walk &walk) const {
  if (evolution_.isLoopInvariant(expression, &loop_)) {
    SCEVExpander expander(evolution_, "hinterland");
    if (!expander.isSafeToExpandAt(expression, loop_.getLoopPreheader()->getTerminator())) walk.refuse("what it begins with cannot be computed ahead of the loop");
    return;
  }
  if (walk.ends()) return;
  switch (expression->getSCEVType()) {
  case scAddRecExpr: {
    auto *recurrence = cast<SCEVAddRecExpr>(expression);
    if (!recurrence->isAffine()) return walk.refuse("it does not advance by steps of one length");
    if (recurrence->getLoop() == &loop_) walk.slice.advances = true;
    else if (walk.entries && loop_.contains(recurrence->getLoop())) return this->expression(recurrence->getStart(), walk);
    else if (is_contained(walk.inside, recurrence->getLoop()) && !walk.previous) walk.slice.inner = true;
    else return walk.refuse("it depends on a loop further inside");
    break;
  }
  case scUDivExpr: {
    auto *divisor = dyn_cast<SCEVConstant>(cast<SCEVUDivExpr>(expression)->getRHS());
    if (!divisor || divisor->isZero()) return walk.refuse("it divides by what may be zero");
    break;
  }
  case scUnknown: return value(cast<SCEVUnknown>(expression)->getValue(), walk);
  case scAddExpr:
  case scMulExpr:
  case scZeroExtend:
  case scSignExtend:
  case scTruncate:
  case scPtrToInt:
  case scSMaxExpr:
  case scUMaxExpr:
  case scSMinExpr:
  case scUMinExpr: break;
  default: return walk.refuse("its expression is of no kind that is known");
  }
  for (const SCEV *operand : expression->operands()) this->expression(operand, walk);
}

void SliceCheck::value(Value *value, Walk &walk) const {
  auto *instruction = dyn_cast<Instruction>(value);
  if (!instruction || !loop_.contains(instruction)) return;
  if (walk.ends()) return;
  if (evolution_.isSCEVable(value->getType())) {
    const SCEV *known = evolution_.getSCEV(value);
    if (!isa<SCEVUnknown>(known) && !isa<SCEVCouldNotCompute>(known)) return expression(known, walk);
  }
  if (auto *phi = dyn_cast<PHINode>(instruction)) {
    if (BasicBlock *before = walk.entries ? entryOf(*phi) : nullptr) return this->value(phi->getIncomingValueForBlock(before), walk);
    if (phi->getParent() != loop_.getHeader() || walk.previous) return walk.refuse("it depends on earlier iterations or on a condition");
    // What the iteration before computed.
    Walk before = walk;
    before.previous = true;
    before.inside = {};
    before.reader = nullptr;
    this->value(phi->getIncomingValueForBlock(loop_.getLoopLatch()), before);
    walk.slice = before.slice;
    walk.slice.advances = true;
    walk.operations = before.operations;
    return;
  }
  if (auto *load = dyn_cast<LoadInst>(instruction)) return this->load(*load, walk);
  bool pure = isa<BinaryOperator, CastInst, CmpInst, SelectInst, GetElementPtrInst, FreezeInst, IntrinsicInst>(instruction);
  if (!pure || instruction->mayReadOrWriteMemory() || !isSafeToSpeculativelyExecute(instruction))
    return walk.refuse("a call or another instruction that cannot be repeated is part of its computation");
  for (Value *operand : instruction->operands()) this->value(operand, walk);
}

void SliceCheck::load(LoadInst &load, Walk &walk) const {
  const Loop *holder = loops_.getLoopFor(load.getParent());
  if (!load.isSimple()) return walk.refuse("an index is volatile or atomic");
  if (!uncertain_.empty()) return walk.refuse(uncertain_);
  if (holder != &loop_ && (holder != walk.reader || walk.previous)) return walk.refuse("an index is read in a loop further inside");
  if (!dominators_.dominates(load.getParent(), holder->getLoopLatch())) return walk.refuse("an index is read under a condition");
  if (walk.exact && written(load))
    return walk.refuse(walk.control ? "the loop may write what tells how often the loop inside runs" : "the loop may write the index that leads to its index");
  if (isLeft_) leftLoad(load, walk);
  walk.slice.loads.push_back(&load);
  bool outer = walk.exact;
  walk.exact = true;
  value(load.getPointerOperand(), walk);
  walk.exact = outer;
}

// A load ahead of its time in a loop that may be left before.
void SliceCheck::leftLoad(LoadInst &load, Walk &walk) const {
  if (load.getPointerAddressSpace() != 0) return walk.refuse("an index is in another address space");
  if (loops_.getLoopFor(load.getParent()) != &loop_ || walk.exact) return walk.refuse("the loop can be left before what its index depends on is read");
  if (mayRelease_) return walk.refuse("the loop can be left, and may release the index before");
  if (isDereferenceableAndAlignedInLoop(&load, &loop_, evolution_, dominators_, &assumptions_)) return;
  auto *address = dyn_cast<SCEVAddRecExpr>(evolution_.getSCEV(load.getPointerOperand()));
  auto *step = address && address->getLoop() == &loop_ ? dyn_cast<SCEVConstant>(address->getStepRecurrence(evolution_)) : nullptr;
  TypeSize bytes = load.getDataLayout().getTypeStoreSize(load.getType());
  if (!step || step->isZero() || step->getAPInt().abs().ugt(pagedStepMax) || bytes.isScalable() || bytes.getFixedValue() > pagedStepMax)
    return walk.refuse("the loop can be left before an index is read, and its indices are not one behind the other");
  walk.slice.paged.push_back({address, step->getAPInt().getSExtValue(), bytes.getFixedValue()});
}

bool SliceCheck::written(LoadInst &load) const {
  LoopAliases aliases(loop_, aliases_);
  for (BasicBlock *block : loop_.blocks())
    for (Instruction &instruction : *block)
      if (instruction.mayWriteToMemory() && isModSet(aliases.of(instruction, MemoryLocation::get(&load)))) return true;
  return false;
}

SliceLowering::SliceLowering(Loop &loop, ScalarEvolution &evolution, LoopInfo &loops, Instruction &invariants)
    : loop_(loop), evolution_(evolution), loops_(loops), invariants_(invariants), expander_(evolution, "hinterland") {}

Value *SliceLowering::lower(const SCEV *expression, const Iterations &at, IRBuilderBase &builder) {
  if (evolution_.isLoopInvariant(expression, &loop_)) return expander_.expandCodeFor(expression, expression->getType(), &invariants_);
  return compute(expression, at, builder);
}

// A sum, of which one part may be a pointer.
static Value *plus(Value *left, Value *right, IRBuilderBase &builder) {
  if (right->getType()->isPointerTy()) std::swap(left, right);
  return left->getType()->isPointerTy() ? builder.CreatePtrAdd(left, right) : builder.CreateAdd(left, right);
}

Value *SliceLowering::compute(const SCEV *expression, const Iterations &at, IRBuilderBase &builder) {
  auto operand = [&](unsigned index) { return lower(expression->operands()[index], at, builder); };
  auto all = [&](auto combine) {
    Value *result = operand(0);
    for (unsigned index = 1; index < expression->operands().size(); index++) result = combine(result, operand(index));
    return result;
  };
  // Of numbers, and of pointers, for which there is no intrinsic.
  auto extreme = [&](Intrinsic::ID which) {
    return all([&](Value *a, Value *b) { return builder.CreateSelect(builder.CreateICmp(MinMaxIntrinsic::getPredicate(which), a, b), a, b); });
  };
  Type *type = expression->getType();
  switch (expression->getSCEVType()) {
  case scAddRecExpr: {
    auto *recurrence = cast<SCEVAddRecExpr>(expression);
    if (!at.contains(recurrence->getLoop())) return lower(recurrence->getStart(), at, builder); // what a loop inside begins with
    Value *step = lower(recurrence->getStepRecurrence(evolution_), at, builder);
    Value *iteration = builder.CreateZExtOrTrunc(at.lookup(recurrence->getLoop()), step->getType());
    return plus(lower(recurrence->getStart(), at, builder), builder.CreateMul(iteration, step), builder);
  }
  case scAddExpr: return all([&](Value *a, Value *b) { return plus(a, b, builder); });
  case scMulExpr: return all([&](Value *a, Value *b) { return builder.CreateMul(a, b); });
  case scUDivExpr: return all([&](Value *a, Value *b) { return builder.CreateUDiv(a, b); });
  case scZeroExtend: return builder.CreateZExt(operand(0), type);
  case scSignExtend: return builder.CreateSExt(operand(0), type);
  case scTruncate: return builder.CreateTrunc(operand(0), type);
  case scPtrToInt: return builder.CreatePtrToInt(operand(0), type);
  case scSMaxExpr: return extreme(Intrinsic::smax);
  case scUMaxExpr: return extreme(Intrinsic::umax);
  case scSMinExpr: return extreme(Intrinsic::smin);
  case scUMinExpr: return extreme(Intrinsic::umin);
  case scUnknown: return lower(cast<SCEVUnknown>(expression)->getValue(), at, builder);
  default: llvm_unreachable("SliceCheck lets no other expression pass");
  }
}

Value *SliceLowering::lower(Value *value, const Iterations &at, IRBuilderBase &builder) {
  auto *instruction = dyn_cast<Instruction>(value);
  if (!instruction || !loop_.contains(instruction)) return value;
  if (evolution_.isSCEVable(value->getType())) {
    const SCEV *known = evolution_.getSCEV(value);
    if (!isa<SCEVUnknown>(known) && !isa<SCEVCouldNotCompute>(known)) return lower(known, at, builder);
  }
  if (auto *phi = dyn_cast<PHINode>(instruction)) {
    if (const Loop *inside = loops_.getLoopFor(phi->getParent()); inside != &loop_)
      return lower(phi->getIncomingValueForBlock(inside->getLoopPreheader()), at, builder);
    if (at.current) return at.current->lookup(phi);
    Iterations before;
    before[&loop_] = builder.CreateSub(at.lookup(&loop_), builder.getInt64(1));
    return lower(phi->getIncomingValueForBlock(loop_.getLoopLatch()), before, builder);
  }
  SmallVector<Value *, 4> operands;
  for (Value *operand : instruction->operands()) operands.push_back(lower(operand, at, builder));
  Instruction *copy = instruction->clone();
  for (unsigned index = 0; index < operands.size(); index++) copy->setOperand(index, operands[index]);
  // What the program knows of its own iteration need not hold for this one.
  copy->dropPoisonGeneratingFlags();
  copy->dropUnknownNonDebugMetadata();
  copy->setDebugLoc(DebugLoc());
  return builder.Insert(copy, instruction->getName());
}

} // namespace hinterland
