// Passes batches to Apache Kafka's LogValidator, and reads the accepted ones as its consumer does. Each input line has the topic's timestamp type,
// the topic's compression ("producer": that of the batch) and the batch in hexadecimal digits; each output line has the error code, or "0"
// with the newest timestamp, the number of records that a consumer reads, their offsets and timestamps, and whether the batch was rebuilt.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class Validator {
    static final LogValidator.MetricsRecorder NO_METRICS = new LogValidator.MetricsRecorder() {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    };

    static MemoryRecords validated(String timestampType, String compression, byte[] bytes) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        MutableRecordBatch batch = records.batches().iterator().next();
        batch.ensureValid();
        CompressionType source = batch.compressionType();
        Compression target = Compression.of(compression.equals("producer") ? source : compression.equals("uncompressed") ? CompressionType.NONE : CompressionType.forName(compression)).build();
        LogValidator validator = new LogValidator(records, new TopicPartition("t", 0), Time.SYSTEM, source, target, false, (byte) 2,
            TimestampType.forName(timestampType), Long.MAX_VALUE, Long.MAX_VALUE, 0, AppendOrigin.CLIENT);
        return validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), NO_METRICS, BufferSupplier.create()).validatedRecords();
    }

    static String verdict(String timestampType, String compression, byte[] bytes) {
        try {
            MemoryRecords stored = validated(timestampType, compression, bytes.clone());
            MutableRecordBatch batch = stored.batches().iterator().next();
            StringBuilder read = new StringBuilder();
            int count = 0;
            try (var records = batch.streamingIterator(BufferSupplier.create())) {
                while (records.hasNext()) {
                    Record record = records.next();
                    count++;
                    if (count <= 5)
                        read.append(' ').append(record.offset()).append(':').append(record.timestamp());
                }
            } catch (RuntimeException error) {
                read.append(" unreadable");
            }
            return "0 " + batch.maxTimestamp() + " " + count + read;
        } catch (RecordValidationException error) {
            return Integer.toString(Errors.forException(error.invalidException()).code());
        } catch (Throwable error) {
            return Errors.forException(error).code() + " " + error.getClass().getSimpleName() + " " + String.valueOf(error.getMessage()).replace('\n', ' ');
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            String[] words = line.split(" ");
            System.out.println(verdict(words[0], words[1], HexFormat.of().parseHex(words[2])));
        }
    }
}
