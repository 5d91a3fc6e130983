//go:build rocksdb

// A file system that does not wait for the disk.
//
// The database is scratch: after a crash its directory is wiped and the state comes from the last checkpoint, whose
// files were read back through the page cache when they were uploaded. So no file needs to be on the disk, and waiting
// for it would be most of what a barrier waits for.
#pragma once
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <memory>
#include <utility>

namespace millstream {

class ScratchFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  using FSWritableFileOwnerWrapper::FSWritableFileOwnerWrapper;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override { return rocksdb::IOStatus::OK(); }
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override { return rocksdb::IOStatus::OK(); }
  rocksdb::IOStatus RangeSync(uint64_t, uint64_t, const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
    return rocksdb::IOStatus::OK();
  }
};

class ScratchDirectory : public rocksdb::FSDirectoryWrapper {
 public:
  using FSDirectoryWrapper::FSDirectoryWrapper;
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override { return rocksdb::IOStatus::OK(); }
  rocksdb::IOStatus FsyncWithDirOptions(const rocksdb::IOOptions&, rocksdb::IODebugContext*,
                                        const rocksdb::DirFsyncOptions&) override {
    return rocksdb::IOStatus::OK();
  }
};

class ScratchFileSystem : public rocksdb::FileSystemWrapper {
 public:
  ScratchFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "millstream.scratch"; }

  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& o,
                                    std::unique_ptr<rocksdb::FSWritableFile>* out, rocksdb::IODebugContext* dbg) override {
    return wrap(FileSystemWrapper::NewWritableFile(path, o, out, dbg), out);
  }
  rocksdb::IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& o,
                                       std::unique_ptr<rocksdb::FSWritableFile>* out,
                                       rocksdb::IODebugContext* dbg) override {
    return wrap(FileSystemWrapper::ReopenWritableFile(path, o, out, dbg), out);
  }
  rocksdb::IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions& o,
                                 std::unique_ptr<rocksdb::FSDirectory>* out, rocksdb::IODebugContext* dbg) override {
    rocksdb::IOStatus s = FileSystemWrapper::NewDirectory(path, o, out, dbg);
    if (s.ok()) *out = std::make_unique<ScratchDirectory>(std::move(*out));
    return s;
  }

 private:
  static rocksdb::IOStatus wrap(rocksdb::IOStatus s, std::unique_ptr<rocksdb::FSWritableFile>* out) {
    if (s.ok()) *out = std::make_unique<ScratchFile>(std::move(*out));
    return s;
  }
};

// One for the process, never freed: background threads may use it to the end.
inline rocksdb::Env* scratch_env() {
  static rocksdb::Env* env = rocksdb::NewCompositeEnv(std::make_shared<ScratchFileSystem>()).release();
  return env;
}

}  // namespace millstream
