// A keyed sum by hand over RocksDB's C++ interface: the same reads and writes of the same entries as spill.go's, in
// batches, with the options of Millstream's backend, whose file is included for them.
//
//	loop CACHE-BYTES KEYS RECORDS BATCH DIR
#include "../../../statebackend/rocksdb/shim.cc"

#include <sys/resource.h>
#include <time.h>

#include <cstdio>
#include <unordered_map>

namespace {

// mix is splitmix64, as in spill.go.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

void append_varint(std::string* s, uint64_t v) {
  for (; v >= 0x80; v >>= 7) s->push_back(char(v | 0x80));
  s->push_back(char(v));
}

uint64_t take_varint(const char** p) {
  uint64_t v = 0;
  for (int shift = 0;; shift += 7) {
    uint8_t b = uint8_t(*(*p)++);
    v |= uint64_t(b & 0x7f) << shift;
    if (b < 0x80) return v;
  }
}

// The key of an entry as in docs/format/state-keys.md, but for another hash in place of the key group.
void encode_key(std::string* s, uint64_t key) {
  s->assign("w\0\xff\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0", 19);
  s->push_back(char(key * 0x9E3779B97F4A7C15 >> 56));
  append_varint(s, key);
}

struct Entry {
  uint64_t count = 0, sum = 0;
  std::string key;
};

// The value as in docs/format/table-entry.md.
void encode_value(std::string* s, const Entry& e) {
  s->clear();
  append_varint(s, e.count);
  s->append("\0\0\0", 3);
  append_varint(s, e.sum);
}

void decode_value(const char* p, Entry* e) {
  e->count = take_varint(&p);
  p += 3;
  e->sum = take_varint(&p);
}

double cpu_seconds() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  return double(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * double(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

double wall_seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

void check(const Status& s) {
  if (!s.ok()) {
    fprintf(stderr, "loop: %s\n", s.ToString().c_str());
    exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: loop CACHE-BYTES KEYS RECORDS BATCH DIR\n");
    return 2;
  }
  const uint64_t memory = strtoull(argv[1], nullptr, 10), keys = strtoull(argv[2], nullptr, 10);
  const uint64_t records = strtoull(argv[3], nullptr, 10), batch = strtoull(argv[4], nullptr, 10);
  ms_options o = {};
  o.cache_bytes = memory;
  o.write_buffer_bytes = std::min<uint64_t>(memory / 2, 64 << 20);
  o.file_bytes = 16 << 20;
  o.block_bytes = 4 << 10;
  o.bloom_bits = 10;
  o.background_jobs = 2;
  std::shared_ptr<Cache> cache = NewLRUCache(memory);
  DB* raw = nullptr;
  check(DB::Open(options(o, cache), std::string(argv[5]) + "/db", &raw));
  std::unique_ptr<DB> db(raw);
  WriteOptions write;
  write.disableWAL = true;

  std::unordered_map<uint64_t, size_t> index;  // of this batch, by key
  std::vector<Entry> entries;
  std::vector<Slice> slices;
  std::vector<PinnableSlice> values(batch);
  std::vector<Status> statuses(batch);
  std::string value;
  WriteBatch changes;
  double cpu = 0, wall = 0;
  for (uint64_t i = 0; i < keys + records;) {
    if (i == keys) cpu = cpu_seconds(), wall = wall_seconds();
    const bool fresh = i < keys;
    const uint64_t end = std::min(i + batch, fresh ? keys : keys + records);
    index.clear();
    size_t n = 0;
    for (; i < end; i++) {
      const uint64_t k = mix(fresh ? i : mix(i) % keys) >> 1;
      auto [it, added] = index.try_emplace(k, n);
      if (added) {
        if (n == entries.size()) entries.emplace_back();
        entries[n].count = entries[n].sum = 0;
        encode_key(&entries[n].key, k);
        n++;
      }
      entries[it->second].count++;
      entries[it->second].sum += i & 1023;
    }
    slices.resize(n);
    for (size_t j = 0; j < n; j++) slices[j] = entries[j].key;
    if (!fresh) {
      db->MultiGet(ReadOptions(), db->DefaultColumnFamily(), n, slices.data(), values.data(), statuses.data());
      for (size_t j = 0; j < n; j++) {
        check(statuses[j]);
        Entry old;
        decode_value(values[j].data(), &old);
        entries[j].count += old.count;
        entries[j].sum += old.sum;
        values[j].Reset();
      }
    }
    changes.Clear();
    for (size_t j = 0; j < n; j++) {
      encode_value(&value, entries[j]);
      changes.Put(slices[j], value);
    }
    check(db->Write(write, &changes));
  }
  cpu = cpu_seconds() - cpu;
  wall = wall_seconds() - wall;

  uint64_t checksum = 0;
  std::unique_ptr<Iterator> it(db->NewIterator(ReadOptions()));
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    const char* p = it->key().data() + 20;
    const uint64_t k = take_varint(&p);
    Entry e;
    decode_value(it->value().data(), &e);
    checksum += mix(k ^ e.sum);
  }
  check(it->status());
  printf("{\"CPU\": %.3f, \"Wall\": %.3f, \"Checksum\": %llu}\n", cpu, wall, static_cast<unsigned long long>(checksum));
  return 0;
}
