#include "keeping.h"
#include "bounds.h"
#include "eviction.h"
#include "llvm/Analysis/DomTreeUpdater.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/LoopUtils.h"

using namespace llvm;

namespace hinterland {

// Of a longer range nothing is kept: its length is that of a walk that does not happen.
static constexpr int64_t keptMax = int64_t(1) << 40;

// Metadata of a loop for which something is kept: in link-time optimisation the pass sees it again.
static constexpr char keptName[] = "hinterland.kept";

// Why a loop does not keep what another one may.
static constexpr char walkedOnce[] = "its loop walks it once";

namespace {

class KeepDecider {
public:
  KeepDecider(const Plan &plan, FunctionAnalyses &analyses) : plan_(plan), analyses_(analyses), evolution_(analyses.evolution) {}

  void consider(Instruction &access, Loop &innermost);
  KeepDecision take();

private:
  const std::string &unfit(Loop &loop);
  std::string add(Instruction &access, const Value *object, Loop &loop);
  bool isComputedBefore(const SCEV *expression, Loop &loop) const;
  const SCEV *bytesOf(const Value *object) const;

  const Plan &plan_;
  FunctionAnalyses &analyses_;
  ScalarEvolution &evolution_;
  DenseMap<Loop *, LoopWish> wishes_;
  DenseMap<Loop *, std::string> unfit_;
  SmallPtrSet<const Value *, 8> kept_; // objects
  MapVector<const Value *, NotKept> refused_;
  KeepDecision decision_;
};

// Why there may be a way out of the loop that releases nothing; empty: there is none.
const std::string &KeepDecider::unfit(Loop &loop) {
  auto [known, isNew] = unfit_.try_emplace(&loop);
  if (!isNew) return known->second;
  auto goesOn = [&](BasicBlock *block) {
    return all_of(*block, [&](Instruction &instruction) { return analyses_.summaries.goesOn(instruction); });
  };
  // A jump back to setjmp leads out of loops.
  if (loop.getHeader()->getParent()->callsFunctionThatReturnsTwice()) known->second = "its function calls setjmp, and a jump back would leave it kept";
  else if (!loop.isLoopSimplifyForm()) known->second = "the shape of its loop does not show all ends";
  else if (loop.hasNoExitBlocks()) known->second = "its loop has no end";
  else if (!all_of(loop.blocks(), goesOn)) known->second = "a call in its loop may not return, and would leave it kept";
  return known->second;
}

bool KeepDecider::isComputedBefore(const SCEV *expression, Loop &loop) const {
  SCEVExpander expander(evolution_, "hinterland");
  return evolution_.isLoopInvariant(expression, &loop) && expander.isSafeToExpandAt(expression, loop.getLoopPreheader()->getTerminator());
}

// The size of an object that is seen where it is allocated; null: it is not.
const SCEV *KeepDecider::bytesOf(const Value *object) const {
  Type *number = Type::getInt64Ty(evolution_.getContext());
  if (auto *global = dyn_cast<GlobalVariable>(object))
    return global->hasDefinitiveInitializer() ? evolution_.getConstant(number, global->getDataLayout().getTypeAllocSize(global->getValueType())) : nullptr;
  auto *call = dyn_cast<CallBase>(object);
  Attribute sized = call ? call->getFnAttr(Attribute::AllocSize) : Attribute();
  if (!sized.isValid()) return nullptr;
  auto argument = [&](unsigned index) { return evolution_.getTruncateOrZeroExtend(evolution_.getSCEV(call->getArgOperand(index)), number); };
  auto [element, count] = sized.getAllocSizeArgs();
  return count ? evolution_.getMulExpr(argument(element), argument(*count)) : argument(element);
}

// Adds what a loop comes to again by an access; why it does not.
std::string KeepDecider::add(Instruction &access, const Value *object, Loop &loop) {
  const SCEV *address = evolution_.getSCEV(getLoadStorePointerOperand(&access)), *start = address;
  while (auto *recurrence = dyn_cast<SCEVAddRecExpr>(start)) {
    if (recurrence->getLoop() == &loop || !loop.contains(recurrence->getLoop())) break;
    start = recurrence->getStart();
  }
  bool isWalk = start != address || isa<SCEVAddRecExpr>(start), isRewalked = start != address && evolution_.isLoopInvariant(start, &loop);
  auto isUnknown = [&](const SCEV *part) { return isa<SCEVUnknown>(part) && !evolution_.isLoopInvariant(part, &loop); };
  bool isScattered = !isWalk && SCEVExprContains(address, isUnknown);
  if (!isRewalked && !isScattered) return walkedOnce;
  if (!unfit(loop).empty()) return unfit(loop);

  Kept kept{evolution_.getPointerBase(address), nullptr, nullptr, &access, object, isScattered};
  Type *number = Type::getInt64Ty(evolution_.getContext());
  if (isRewalked) {
    Bounds bounds(evolution_, &loop);
    const SCEV *offset = evolution_.removePointerBase(address);
    kept.begin = bounds.of(offset, false);
    kept.end = bounds.of(offset, true);
    TypeSize bytes = access.getDataLayout().getTypeStoreSize(getLoadStoreType(&access));
    if (kept.end) kept.end = evolution_.getAddExpr(kept.end, evolution_.getConstant(kept.end->getType(), bytes.getKnownMinValue()));
  }
  if (!kept.begin || !kept.end) {
    kept.base = evolution_.getSCEV(const_cast<Value *>(object));
    kept.begin = evolution_.getZero(number);
    kept.end = bytesOf(object);
    if (!kept.end) return isScattered ? "how large it is cannot be told" : "how far it is walked cannot be told";
  }
  for (const SCEV *part : {kept.base, kept.begin, kept.end})
    if (!isComputedBefore(part, loop)) return "its place and size are not known when its loop begins";
  SmallVector<Kept, 2> &all = decision_.loops[&loop];
  auto *same = find_if(all, [&](const Kept &other) { return other.base == kept.base; });
  if (same == all.end()) return all.push_back(kept), "";
  same->begin = evolution_.getSMinExpr(same->begin, kept.begin);
  same->end = evolution_.getSMaxExpr(same->end, kept.end);
  same->isScattered |= kept.isScattered;
  return "";
}

// Of the loops that an access is in, the outermost that comes to its memory again.
void KeepDecider::consider(Instruction &access, Loop &innermost) {
  Value *pointer = getLoadStorePointerOperand(&access);
  if (pointer->getType()->getPointerAddressSpace() != 0) return;
  const Value *object = getUnderlyingObject(pointer, 12);
  if (!near(object, access.getDataLayout()).empty()) return;
  SmallVector<Loop *, 4> around;
  for (Loop *loop = &innermost; loop; loop = loop->getParentLoop()) around.push_back(loop);
  if (any_of(around, [](const Loop *loop) { return getBooleanLoopAttribute(loop, keptName); })) return;
  std::string why;
  for (Loop *loop : reverse(around)) {
    auto [said, isNew] = wishes_.try_emplace(loop);
    if (isNew) said->second = wish(plan_, *loop);
    if (!said->second.fetch || plannedEviction(object, said->second, plan_) != Eviction::Last) continue;
    if (evolution_.isLoopInvariant(evolution_.getSCEV(pointer), loop)) continue;
    why = add(access, object, *loop);
    if (!why.empty()) continue;
    kept_.insert(object);
    return;
  }
  if (why.empty()) return;
  auto [refusal, isNew] = refused_.insert({object, {&access, object, why}});
  if (!isNew && refusal->second.why == walkedOnce) refusal->second = {&access, object, why};
}

// Of an object that one loop comes to again it need not be said that another does not.
KeepDecision KeepDecider::take() {
  for (auto &[object, refusal] : refused_)
    if (!kept_.contains(object)) decision_.refusals.push_back(std::move(refusal));
  return std::move(decision_);
}

} // namespace

KeepDecision decideKeeping(Function &function, const Plan &plan, FunctionAnalyses &analyses) {
  KeepDecider decider(plan, analyses);
  if (!plan.given) return {};
  for (BasicBlock &block : function)
    if (Loop *loop = analyses.loops.getLoopFor(&block))
      for (Instruction &instruction : block)
        if (isa<LoadInst, StoreInst>(instruction)) decider.consider(instruction, *loop);
  return decider.take();
}

void keep(const KeepDecision &decision, Interface &interface, FunctionAnalyses &analyses) {
  struct Range {
    Value *address, *length;
  };
  struct Around {
    Loop *loop;
    Value *table;
    SmallVector<Range, 2> ranges;
  };
  SmallVector<Around, 2> all;
  SCEVExpander expander(analyses.evolution, "hinterland");
  for (auto &[loop, objects] : decision.loops) {
    Instruction *before = loop->getLoopPreheader()->getTerminator();
    IRBuilder<> builder(before);
    Around &around = all.emplace_back(Around{loop, nullptr, {}});
    // What comes first has the room: of what is scattered each page is as likely as the others.
    for (bool isScattered : {true, false})
      for (const Kept &kept : objects) {
        if (kept.isScattered != isScattered) continue;
        auto expand = [&](const SCEV *part) { return expander.expandCodeFor(part, part->getType(), before); };
        Value *base = expand(kept.base), *begin = expand(kept.begin), *end = expand(kept.end);
        Value *length = builder.CreateSub(end, begin);
        length = builder.CreateSelect(builder.CreateICmpULT(length, builder.getInt64(keptMax)), length, builder.getInt64(0));
        around.ranges.push_back({builder.CreatePtrAdd(base, begin), length});
      }
    builder.SetCurrentDebugLocation(loop->getStartLoc());
    around.table = interface.table(builder);
  }
  DomTreeUpdater dominators(analyses.dominators, DomTreeUpdater::UpdateStrategy::Eager);
  for (const Around &around : all) {
    LLVMContext &context = around.table->getContext();
    auto *unlikely = MDBuilder(context).createBranchWeights(1, 64);
    auto say = [&](Call which, BasicBlock::iterator at) {
      IRBuilder<> builder(&*at);
      builder.SetCurrentDebugLocation(around.loop->getStartLoc());
      Instruction *then = SplitBlockAndInsertIfThen(builder.CreateIsNotNull(around.table), at, false, unlikely, &dominators, &analyses.loops);
      builder.SetInsertPoint(then);
      for (const Range &range : around.ranges) interface.call(builder, around.table, which, {range.address, range.length});
    };
    SmallVector<BasicBlock *, 4> ends;
    around.loop->getUniqueExitBlocks(ends);
    for (BasicBlock *end : ends) say(Call::Release, end->getFirstInsertionPt());
    say(Call::Keep, around.loop->getLoopPreheader()->getTerminator()->getIterator());
    Instruction &branch = *around.loop->getLoopLatch()->getTerminator();
    auto *kept = MDNode::get(context, MDString::get(context, keptName));
    branch.setMetadata(LLVMContext::MD_loop, makePostTransformationMetadata(context, branch.getMetadata(LLVMContext::MD_loop), {}, {kept}));
  }
}

} // namespace hinterland
