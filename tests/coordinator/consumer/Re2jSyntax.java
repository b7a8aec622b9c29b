import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/** For each line, an expression and names, separated by tabs: whether RE2/J refuses the expression (`-`), or a 1 for each name that it matches. */
public class Re2jSyntax {
    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            List<String> parts = Arrays.asList(line.split("\t", -1));
            StringBuilder out = new StringBuilder();
            try {
                Pattern pattern = Pattern.compile(parts.get(0));
                for (String name : parts.subList(1, parts.size())) out.append(pattern.matches(name) ? '1' : '0');
            } catch (PatternSyntaxException refused) {
                out.append('-');
            }
            System.out.println(out);
        }
    }
}
