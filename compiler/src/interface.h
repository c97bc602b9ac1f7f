// What compiled code shares with libhinterland.so, version 1: the table of hints (hinterland.h), the pointer to it, and the note.
//
// The pointer is null until a constructor has asked `hinterland_hints`, a weak function: a program without Hinterland has none, and each of its
// hinted loops finds null and runs as it was written. One pointer and one constructor remain of those of all objects that are linked together.
#pragma once

#include "plan.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

namespace hinterland {

// Functions of the table that loops call, by their places in it.
enum class Call { Keep = 4, Release, Overwrite, LoopBegin = 8, LoopEnd, LoopFetch, LoopFetchv, LoopEvict, LoopSearch };

// What loop_search answers where nothing is far but what comes later.
inline constexpr uint64_t later = ~uint64_t(0);

class Interface {
public:
  Interface(llvm::Module &module, const Plan &plan);

  // Loads the table's address; null without Hinterland.
  llvm::Value *table(llvm::IRBuilderBase &builder);
  // Whether it has a function, which the table of an older library may lack.
  llvm::Value *has(llvm::IRBuilderBase &builder, llvm::Value *table, Call which);
  // The loop's own state: "function file:line:column", the runtime's words, and whether all that it walks goes in steps.
  llvm::GlobalVariable *loop(const llvm::Twine &name, bool walksInSteps);
  llvm::CallInst *call(llvm::IRBuilderBase &builder, llvm::Value *table, Call which, llvm::ArrayRef<llvm::Value *> arguments);
  // The module has hinted loops: it gets pointer, constructor and note.
  bool used() const { return pointer_ != nullptr; }

private:
  llvm::GlobalVariable *pointer();
  void constructor(llvm::GlobalVariable *pointer, llvm::Comdat *comdat);
  void note();

  llvm::Module &module_;
  const Plan &plan_;
  llvm::LLVMContext &context_;
  llvm::GlobalVariable *pointer_ = nullptr;
};

} // namespace hinterland
