#include "analysis.h"
#include "chain.h"
#include "eviction.h"
#include "overwriting.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/Transforms/Utils/LoopUtils.h"

using namespace llvm;

namespace hinterland {

// An object below this size is not worth a question (16 pages).
static constexpr uint64_t smallBytes = 64 * 1024;
// Bytes that a call touches, at most, where they are taken as one piece: a page to each side of an argument.
static constexpr int64_t touchedMax = 3 * page;
// Accesses of a loop that are hinted; of a gather, with a buffer of 64 addresses for each.
static constexpr unsigned accessesMax = 12;

static constexpr char noneWanted[] = "the plan wants none of its patterns";

// Bytes of the widest walk in a chunk: four pages, which travel together.
static constexpr int64_t chunkBytes = 4 * page;
// Iterations in a chunk where addresses are gathered.
static constexpr int64_t gatherIterations = 64;
// Chunks for the indices of a page where they are read on the page that the loop has come to: for the first of them it has not come to it yet.
static constexpr int64_t pageChunks = 16;

StringRef name(Pattern pattern) {
  switch (pattern) {
  case Pattern::Sequential: return "sequential";
  case Pattern::Strided: return "strided";
  case Pattern::Nest: return "a range for each iteration";
  case Pattern::Gather: return "indirect";
  case Pattern::Chain: return "a chain";
  }
  llvm_unreachable("every pattern has a name");
}

namespace {

class Decider {
public:
  Decider(Loop &loop, ArrayRef<Pattern> patterns, FunctionAnalyses &analyses)
      : loop_(loop), patterns_(patterns), analyses_(analyses), evolution_(analyses.evolution),
        check_(loop, analyses), layout_(loop.getHeader()->getDataLayout()) {}

  LoopDecision decide();

private:
  std::string unfit();
  void classify(Instruction &instruction);
  void classify(CallBase &call);
  void classify(Access access, Value *pointer);
  bool merge(const Access &access);
  bool mergeEnds(Access &other, const Access &access);
  void range(Access access, const SCEV *step);
  void inner(Access access);
  void gather(Access access, const Loop *reader);
  void entry(Access access, const std::string &why);
  bool countable(const Loop *inner, Slice &slice, SliceCheck::Use use);
  bool isWalked(const Access &access, ArrayRef<const Loop *> between);
  void leads();

  Loop &loop_;
  ArrayRef<Pattern> patterns_; // only these; none: all
  FunctionAnalyses &analyses_;
  ScalarEvolution &evolution_;
  SliceCheck check_;
  const DataLayout &layout_;
  LoopDecision decision_;
};

// Why the loop cannot be cut into pieces of some iterations.
std::string Decider::unfit() {
  if (!loop_.isLoopSimplifyForm() || !loop_.isSafeToClone()) return "its shape does not allow a second version";
  decision_.isLeft = isLeft(loop_, evolution_);
  if (!isa<BranchInst>(loop_.getLoopLatch()->getTerminator())) return "its shape does not allow a second version";
  // Of its ways out those count that can be counted; by the others it may only end before.
  const SCEV *taken = decision_.isLeft ? evolution_.getSymbolicMaxBackedgeTakenCount(&loop_) : evolution_.getBackedgeTakenCount(&loop_);
  SmallVector<BasicBlock *, 4> exiting;
  loop_.getExitingBlocks(exiting);
  auto isCounted = [&](BasicBlock *block) { return !isa<SCEVCouldNotCompute>(evolution_.getExitCount(&loop_, block)); };
  // What a counter's type has room for is no number of iterations.
  if (isa<SCEVCouldNotCompute>(taken) || (isa<SCEVConstant>(taken) && none_of(exiting, isCounted)))
    return "its number of iterations is not known when it begins";
  if (evolution_.getTypeSizeInBits(taken->getType()) > 64) return "its counter has more than 64 bits";
  SCEVExpander expander(evolution_, "hinterland");
  if (!expander.isSafeToExpandAt(taken, loop_.getLoopPreheader()->getTerminator())) return "its number of iterations cannot be computed ahead";
  if (auto count = evolution_.getSmallConstantMaxTripCount(&loop_); count && count < 64) return "it has few iterations";
  decision_.taken = taken;
  return "";
}

LoopDecision Decider::decide() {
  decision_.loop = &loop_;
  decision_.refused = unfit();
  if (!decision_.refused.empty()) return std::move(decision_);
  for (BasicBlock *block : loop_.blocks())
    for (Instruction &instruction : *block)
      if (auto *call = dyn_cast<CallBase>(&instruction)) classify(*call);
      else if (isa<LoadInst, StoreInst>(instruction)) classify(instruction);
  if (decision_.accesses.empty()) decision_.refused = "nothing that it walks can be fetched ahead";
  leads();
  if (!patterns_.empty()) {
    erase_if(decision_.accesses, [&](const Access &access) { return !is_contained(patterns_, access.pattern); });
    if (decision_.accesses.empty() && decision_.refused.empty()) decision_.refused = noneWanted;
  }
  return std::move(decision_);
}

void Decider::classify(Instruction &instruction) {
  Value *pointer = getLoadStorePointerOperand(&instruction);
  TypeSize size = layout_.getTypeStoreSize(getLoadStoreType(&instruction));
  if (size.isScalable()) return;
  Access access;
  access.address = evolution_.getSCEV(pointer);
  access.bytes = size.getFixedValue();
  access.at = &instruction;
  access.writes = isa<StoreInst>(instruction);
  classify(std::move(access), pointer);
}

// What a function that stays one touches of its arguments' memory is the loop's own.
void Decider::classify(CallBase &call) {
  Function *function = call.getCalledFunction();
  LibFunc known;
  if (!function || function->isIntrinsic() || analyses_.library.getLibFunc(*function, known)) return;
  const SmallVector<Reach, 2> &reaches = analyses_.summaries.of(*function).reaches;
  for (const Reach &reach : reaches) {
    Value *pointer = call.getArgOperand(reach.argument);
    const SCEV *begin = reach.begin.at(call, evolution_), *end = reach.end.at(call, evolution_);
    if (!begin || !end) continue;
    auto *length = dyn_cast<SCEVConstant>(evolution_.getMinusSCEV(end, begin));
    bool isPiece = length && length->getAPInt().isStrictlyPositive() && length->getAPInt().sle(touchedMax);
    Access access;
    access.address = evolution_.getAddExpr(evolution_.getSCEV(pointer), begin);
    access.bytes = isPiece ? length->getAPInt().getZExtValue() : reach.bytes;
    if (!isPiece) access.end = evolution_.getAddExpr(evolution_.getSCEV(pointer), end);
    access.at = &call;
    access.writes = reach.writes;
    classify(std::move(access), pointer);
  }
  auto isWalked = [&](const Use &argument) {
    return argument->getType()->isPointerTy() && !evolution_.isLoopInvariant(evolution_.getSCEV(argument), &loop_);
  };
  if (reaches.empty() && any_of(call.args(), isWalked)) decision_.refusals.push_back({&call, "what the call touches there cannot be told"});
}

void Decider::classify(Access access, Value *pointer) {
  if (pointer->getType()->getPointerAddressSpace() != 0) return;
  bool moves = !evolution_.isLoopInvariant(access.address, &loop_);
  if (!moves && !access.end) return;
  access.holder = analyses_.loops.getLoopFor(access.at->getParent());
  access.object = getUnderlyingObject(pointer, 12);
  if (auto why = near(access.object, layout_); !why.empty()) return;
  if (!moves) return decision_.refusals.push_back({access.at, "each iteration walks it again"});
  if (merge(access)) return;
  if (decision_.accesses.size() == accessesMax) return decision_.refusals.push_back({access.at, "the loop walks too much else"});

  auto *recurrence = dyn_cast<SCEVAddRecExpr>(access.address);
  bool isAffine = recurrence && recurrence->getLoop() == &loop_ && recurrence->isAffine();
  if (isAffine && !access.end) return range(std::move(access), recurrence->getStepRecurrence(evolution_));
  if (access.end || access.holder != &loop_) return inner(std::move(access));
  gather(std::move(access), nullptr);
}

// An access at a fixed distance from another becomes part of it.
bool Decider::merge(const Access &access) {
  for (Access &other : decision_.accesses) {
    if (other.holder != access.holder || !other.end != !access.end) continue;
    if (evolution_.getPointerBase(other.address) != evolution_.getPointerBase(access.address)) continue;
    const SCEV *difference = evolution_.getMinusSCEV(access.address, other.address);
    auto *constant = dyn_cast<SCEVConstant>(difference);
    if (!constant || constant->getAPInt().getSignificantBits() > 32) continue;
    int64_t low = std::min<int64_t>(0, constant->getAPInt().getSExtValue());
    int64_t high = std::max<int64_t>(other.bytes, constant->getAPInt().getSExtValue() + int64_t(access.bytes));
    if (high - low > page || (access.end && !mergeEnds(other, access))) continue;
    if (low < 0) other.address = access.address;
    if (!access.end) other.bytes = high - low;
    other.writes |= access.writes;
    return true;
  }
  return false;
}

// The same of where ranges end.
bool Decider::mergeEnds(Access &other, const Access &access) {
  auto *further = dyn_cast<SCEVConstant>(evolution_.getMinusSCEV(access.end, other.end));
  if (!further || further->getAPInt().abs().ugt(page)) return false;
  if (further->getAPInt().isStrictlyPositive()) other.end = access.end;
  return true;
}

void Decider::range(Access access, const SCEV *step) {
  Slice slice = check_.check(access.address, {}, nullptr);
  if (!slice.refused.empty()) return decision_.refusals.push_back({access.at, slice.refused});
  auto *constant = dyn_cast<SCEVConstant>(step);
  access.step = constant && constant->getAPInt().getSignificantBits() <= 32 ? constant->getAPInt().getSExtValue() : 0;
  access.holder = &loop_;
  bool apart = access.step == 0 || std::abs(access.step) >= page;
  access.pattern = apart ? Pattern::Gather : uint64_t(std::abs(access.step)) <= access.bytes ? Pattern::Sequential : Pattern::Strided;
  decision_.accesses.push_back(std::move(access));
}

// Whether the iterations of a loop inside can be counted for a later iteration. `use`: of the number.
bool Decider::countable(const Loop *inner, Slice &slice, SliceCheck::Use use) {
  const SCEV *taken = evolution_.getBackedgeTakenCount(inner);
  if (isa<SCEVCouldNotCompute>(taken)) {
    slice.refused = "the loop inside has no number of iterations that is known when it begins";
    return false;
  }
  slice.add(check_.check(taken, {}, nullptr, use));
  return slice.refused.empty();
}

// Whether each iteration walks its range: what tells where it begins and ends is then the program's own.
bool Decider::isWalked(const Access &access, ArrayRef<const Loop *> between) {
  const BasicBlock *begins = access.end ? access.at->getParent() : access.holder->getLoopPreheader();
  if (!analyses_.dominators.dominates(begins, loop_.getLoopLatch())) return false;
  if (access.loads.empty()) return true;
  auto isExact = [&](const SCEV *expression) { return check_.check(expression, between, nullptr, SliceCheck::Use::Control).refused.empty(); };
  return isExact(access.address) && (!access.end || isExact(access.end)) &&
         all_of(between, [&](const Loop *inside) { return isExact(evolution_.getBackedgeTakenCount(inside)); });
}

// What loops inside walk, or calls: a range for each iteration, or addresses of their own.
void Decider::inner(Access access) {
  SmallVector<const Loop *, 4> between;
  for (const Loop *inside = access.holder; inside != &loop_; inside = inside->getParentLoop()) between.push_back(inside);
  Slice slice = check_.check(access.address, between, nullptr);
  bool last = loop_.isInnermost(), advances = slice.advances;
  if (access.end) slice.add(check_.check(access.end, between, nullptr));
  if (slice.refused.empty() && !slice.inner && !access.end) { // the loops inside don't move it
    if (slice.loads.empty()) return decision_.refusals.push_back({access.at, "it does not advance by steps of one length"});
    access.holder = &loop_;
    return gather(std::move(access), nullptr);
  }
  if (slice.refused.empty()) {
    if (!advances) {
      decision_.rewalks |= !last;
      return decision_.refusals.push_back({access.at, "each iteration walks it again"});
    }
    for (const Loop *inside : between)
      if (!countable(inside, slice, SliceCheck::Use::Address)) return entry(std::move(access), slice.refused);
    // Of ranges the last one is looked at before the loop begins.
    if (decision_.isLeft && !slice.loads.empty()) return entry(std::move(access), "the loop can be left before the range is known");
    access.pattern = Pattern::Nest;
    access.loads = slice.loads;
    access.isWalked = isWalked(access, between);
    return decision_.accesses.push_back(std::move(access));
  }
  if (access.end || access.holder->getParentLoop() != &loop_) return entry(std::move(access), slice.refused);
  const Loop *reader = access.holder;
  gather(std::move(access), reader);
}

// What cannot be followed through a loop inside: where that begins, in each iteration. `why` it cannot.
void Decider::entry(Access access, const std::string &why) {
  Slice slice = check_.checkEntry(access.address);
  if (!slice.refused.empty() || !slice.advances) return decision_.refusals.push_back({access.at, why});
  access.pattern = Pattern::Gather;
  access.holder = &loop_;
  access.end = nullptr;
  access.loads = slice.loads;
  access.paged = slice.paged;
  decision_.accesses.push_back(std::move(access));
}

void Decider::gather(Access access, const Loop *reader) {
  const Loop *inside[] = {reader};
  Slice slice = check_.check(access.address, reader ? ArrayRef(inside) : ArrayRef<const Loop *>(), reader);
  if (slice.refused.empty() && reader) {
    // Its loop is entered in each iteration, or under a condition that can be evaluated too.
    Slice guard;
    if (!analyses_.dominators.dominates(reader->getLoopPreheader(), loop_.getLoopLatch())) {
      BranchInst *branch = reader->getLoopGuardBranch();
      if (!branch || !analyses_.dominators.dominates(branch->getParent(), loop_.getLoopLatch()))
        guard.refused = "the loop inside is entered under conditions that are not understood";
      else
        guard = check_.check(branch->getCondition());
    }
    countable(reader, slice, SliceCheck::Use::Control);
    // In the iteration that it leaves in the middle the rest is not executed.
    if (slice.refused.empty() && reader->getExitingBlock() != reader->getLoopLatch())
      slice.refused = "the loop inside can be left in the middle of an iteration";
    slice.add(guard);
    if (slice.refused.empty() && !slice.advances) {
      decision_.rewalks = true;
      slice.refused = "each iteration walks it again";
    }
  }
  if (!slice.refused.empty() && reader) return entry(std::move(access), slice.refused);
  if (!slice.refused.empty()) return decision_.refusals.push_back({access.at, slice.refused});
  if (slice.loads.empty() && !slice.advances) return decision_.refusals.push_back({access.at, "it does not advance"});
  access.pattern = Pattern::Gather;
  access.loads = slice.loads;
  access.paged = slice.paged;
  decision_.accesses.push_back(std::move(access));
}

// What an address depends on is there before it is computed.
void Decider::leads() {
  for (unsigned round = 0; round < 3; round++)
    for (const Access &reader : decision_.accesses)
      for (LoadInst *load : reader.loads) {
        const SCEV *address = evolution_.getSCEV(load->getPointerOperand());
        for (Access &access : decision_.accesses) {
          if (evolution_.getPointerBase(access.address) != evolution_.getPointerBase(address) || &access == &reader) continue;
          access.lead = std::max(access.lead, std::min(reader.lead + 1, 4u));
        }
      }
}

} // namespace

bool isLeft(const Loop &loop, ScalarEvolution &evolution) {
  return loop.getExitingBlock() != loop.getLoopLatch() || isa<SCEVCouldNotCompute>(evolution.getBackedgeTakenCount(&loop));
}

bool isDeadEnd(const BasicBlock &block, unsigned blocks) {
  if (isa<UnreachableInst>(block.getTerminator())) return true;
  if (any_of(block, [](const Instruction &instruction) { auto *call = dyn_cast<CallBase>(&instruction); return call && call->doesNotReturn(); })) return true;
  // A block of the loop's own ahead of one that several have, perhaps with a release (`keeping`).
  return blocks > 1 && succ_size(&block) > 0 && all_of(successors(&block), [&](const BasicBlock *next) { return isDeadEnd(*next, blocks - 1); });
}

std::string near(const Value *object, const DataLayout &layout) {
  if (isa<AllocaInst>(object)) return "it is on the stack";
  if (auto *argument = dyn_cast<Argument>(object); argument && argument->hasByValAttr()) return "it is on the stack";
  if (auto *global = dyn_cast<GlobalVariable>(object)) {
    if (global->isThreadLocal()) return "it belongs to one thread";
    if (!global->hasInitializer()) return "";
    if (layout.getTypeAllocSize(global->getValueType()) < smallBytes) return "it is small";
  }
  return "";
}

int64_t iterationsPerChunk(const LoopDecision &decision) {
  int64_t widest = 1, most = chunkBytes;
  for (const Access &access : decision.accesses) {
    if (access.pattern == Pattern::Gather) most = std::min(most, gatherIterations);
    for (const PagedLoad &load : access.paged) most = std::min(most, std::max<int64_t>(1, page / pageChunks / std::abs(load.step)));
    if (access.pattern == Pattern::Sequential || access.pattern == Pattern::Strided) widest = std::max(widest, std::abs(access.step));
  }
  return std::min(most, std::max<int64_t>(1, chunkBytes / widest));
}

void findPlace(const Loop &loop, function_ref<bool(const DISubprogram *program, StringRef linkage, unsigned line)> isIt) {
  DebugLoc start = loop.getStartLoc();
  for (const DILocation *place = start.get(); place; place = place->getInlinedAt()) {
    const DISubprogram *program = place->getScope()->getSubprogram();
    StringRef linkage = program->getLinkageName().empty() ? program->getName() : program->getLinkageName();
    if (isIt(program, linkage, place->getLine())) return;
  }
  const Function &function = *loop.getHeader()->getParent();
  isIt(function.getSubprogram(), function.getName(), start ? start.getLine() : 0);
}

LoopWish wish(const Plan &plan, const Loop &loop) {
  LoopWish result;
  if (!plan.given) return result;
  result.fetch = false;
  findPlace(loop, [&](const DISubprogram *program, StringRef linkage, unsigned line) {
    const FunctionPlan *function = planOf(plan, program, linkage);
    if (!function) return false;
    result = {function->fetch, function->evict, true, function->patterns};
    for (const LoopPlan &one : function->loops)
      if (one.line == line) result = {one.fetch.value_or(function->fetch), one.evict ? one.evict : function->evict, true, function->patterns};
    return true;
  });
  return result;
}

bool isPlanned(const Plan &plan, const Function &function) {
  const FunctionPlan *planned = planOf(plan, function.getSubprogram(), function.getName());
  return planned && planned->fetch;
}

// Whether the program goes on where the loop is left by a way that cannot be counted.
static bool mayEndEarly(const Loop &loop, ScalarEvolution &evolution) {
  SmallVector<BasicBlock *, 4> exiting;
  loop.getExitingBlocks(exiting);
  auto goesOn = [&](const BasicBlock *next) { return !loop.contains(next) && !next->isEHPad() && !isDeadEnd(*next); };
  return any_of(exiting, [&](const BasicBlock *block) {
    return isa<SCEVCouldNotCompute>(evolution.getExitCount(&loop, block)) && any_of(successors(block), goesOn);
  });
}

LoopDecision decide(Loop &loop, const LoopWish &wish, const Plan &plan, FunctionAnalyses &analyses) {
  LoopDecision decision;
  if (!wish.fetch) {
    decision.loop = &loop;
    decision.refused = wish.planned ? "the plan says so" : "the plan does not name its function";
    return decision;
  }
  if (isChain(loop, analyses)) {
    decision = decideChain(loop, analyses);
    // Most chains are short (hash tables), and the question costs more than their walk.
    if (!wish.planned) decision.refused = "it follows a chain, which is fetched ahead only where a plan names the function";
    if (!wish.patterns.empty() && !is_contained(wish.patterns, Pattern::Chain)) decision.refused = noneWanted;
    return decision;
  }
  decision = Decider(loop, wish.patterns, analyses).decide();
  // A search may end early, and the question costs more than its walk; a check that fails ends all.
  decision.endsEarly = mayEndEarly(loop, analyses.evolution);
  if (decision.refused.empty() && !wish.planned && decision.endsEarly)
    decision.refused = "it may be left early, and is hinted only where a plan names the function";
  // A second version of every loop would double a program; prefetchers follow what goes in steps.
  bool steps = none_of(decision.accesses, [](const Access &access) { return access.pattern == Pattern::Gather || !access.loads.empty(); });
  decision.steps = steps && none_of(decision.accesses, [](const Access &access) { return access.pattern == Pattern::Nest; });
  if (decision.refused.empty() && !wish.planned && steps) decision.refused = "it walks in steps, which prefetchers follow; a plan would hint it";
  if (decision.refused.empty())
    for (Access &access : decision.accesses) {
      decideEviction(access, decision, wish, plan, analyses);
      decideOverwriting(access, loop, analyses);
    }
  // Two chunks are promised at a time: pages that lie in neither of such pairs would only not be fetched.
  for (Access &access : decision.accesses)
    if (access.overwrites && iterationsPerChunk(decision) * access.step < page) {
      access.overwrites = false;
      access.read = "less than a page of it is written at a time";
    }
  decision.evictionIsWanted = any_of(decision.accesses, [](const Access &access) { return access.wanted; });
  return decision;
}

} // namespace hinterland
